// Starts npm's oidc-provider with one client and one resource: PORT AUDIENCE FORMAT, where FORMAT is jwt or opaque.
import { createRequire } from "node:module";

const [modules, port, audience, accessTokenFormat] = process.argv.slice(2);
const { Provider } = createRequire(`${modules}/`)("oidc-provider");
const resource = { scope: "mcp other", audience, accessTokenFormat, jwt: { sign: { alg: "RS256" } } };
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [
    {
      client_id: "ann",
      client_secret: "secret-of-ann",
      grant_types: ["client_credentials"],
      redirect_uris: [],
      response_types: [],
    },
  ],
  scopes: ["mcp", "other"],
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    introspection: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => audience,
      getResourceServerInfo: () => resource,
    },
  },
  // The provider names no subject of tokens that programs get.
  extraTokenClaims: () => ({ sub: "ann", org: "blue", groups: ["admins"] }),
});
provider.listen(Number(port), "127.0.0.1", () => console.log("listening"));
