// Starts npm's oidc-provider for people, who sign in with any name on its own forms: PORT AUDIENCE REDIRECT_URI.
// Its client `portal` has that redirect URI; others may register. The programs `ann` and `bob` get tokens of these people.
import { createRequire } from "node:module";

const [modules, port, audience, redirectUri] = process.argv.slice(2);
const { Provider } = createRequire(`${modules}/`)("oidc-provider");
const resource = { scope: "mcp", audience, accessTokenFormat: "jwt", jwt: { sign: { alg: "RS256" } } };
const program = (name) => ({
  client_id: name,
  client_secret: `secret-of-${name}`,
  grant_types: ["client_credentials"],
  redirect_uris: [],
  response_types: [],
});
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [
    program("ann"),
    program("bob"),
    { client_id: "portal", redirect_uris: [redirectUri], token_endpoint_auth_method: "none" },
  ],
  clientAuthMethods: ["client_secret_basic", "client_secret_post", "none"],
  scopes: ["mcp", "offline_access"],
  issueRefreshToken: () => true,
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  features: {
    clientCredentials: { enabled: true },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => audience,
      getResourceServerInfo: () => resource,
      useGrantedResource: () => true,
    },
  },
  // The provider names no subject of tokens that programs get.
  extraTokenClaims: (ctx, token) => (token.kind === "ClientCredentials" ? { sub: token.clientId } : {}),
});
provider.listen(Number(port), "127.0.0.1", () => console.log("listening"));
