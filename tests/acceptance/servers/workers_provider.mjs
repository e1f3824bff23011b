// Starts an MCP server behind npm's @cloudflare/workers-oauth-provider, which many public ones use: PORT REDIRECT_URI.
// It refuses a request with two ways of client authentication. It registers clients that come back to localhost alone,
// and tells the id and the secret of one that has REDIRECT_URI and uses Basic. Node stands for a Worker here.
import { createServer } from "node:http";
import { registerHooks } from "node:module";
import { Readable } from "node:stream";

const [modules, port, redirectUri] = process.argv.slice(2);
const worker = "data:text/javascript,export class WorkerEntrypoint {}";
registerHooks({
  resolve: (name, context, next) =>
    name === "cloudflare:workers" ? { url: worker, shortCircuit: true } : next(name, context),
});
const library = `${modules}/@cloudflare/workers-oauth-provider/dist/oauth-provider.js`;
const { OAuthProvider, getOAuthApi } = await import(`file://${library}`);

const kept = new Map();
const env = {
  OAUTH_KV: {
    get: async (key, { type } = {}) =>
      type === "json" ? JSON.parse(kept.get(key) ?? "null") : (kept.get(key) ?? null),
    put: async (key, value) => void kept.set(key, value),
    delete: async (key) => void kept.delete(key),
    list: async ({ prefix }) => ({
      keys: [...kept.keys()].filter((name) => name.startsWith(prefix)).map((name) => ({ name })),
      list_complete: true,
    }),
  },
};

const results = (params, who) => ({
  initialize: {
    protocolVersion: params?.protocolVersion,
    capabilities: { tools: {} },
    serverInfo: { name: "tickets", version: "1" },
  },
  ping: {},
  "tools/list": { tools: [{ name: "whoami", inputSchema: { type: "object" } }] },
  "tools/call": { content: [{ type: "text", text: who }] },
});

async function mcp(request, env, context) {
  if (request.method !== "POST") return new Response(null, { status: 405 });
  const { id, method, params } = await request.json();
  if (id === undefined) return new Response(null, { status: 202 });
  const result = results(params, context.props.name)[method];
  const answer = result ? { result } : { error: { code: -32601, message: "Method not found" } };
  return Response.json({ jsonrpc: "2.0", id, ...answer });
}

async function authorize(request, env) {
  if (new URL(request.url).pathname !== "/authorize") return new Response(null, { status: 404 });
  const asked = await env.OAUTH_PROVIDER.parseAuthRequest(request);
  const { redirectTo } = await env.OAUTH_PROVIDER.completeAuthorization({
    request: asked,
    userId: "ann",
    metadata: {},
    scope: asked.scope,
    props: { name: "ann" },
  });
  return Response.redirect(redirectTo, 302);
}

const options = {
  apiRoute: "/mcp",
  apiHandler: { fetch: mcp },
  defaultHandler: { fetch: authorize },
  authorizeEndpoint: "/authorize",
  tokenEndpoint: "/token",
  clientRegistrationEndpoint: "/register",
  resourceMetadata: { resource: `http://127.0.0.1:${port}/mcp` },
  clientRegistrationCallback: ({ clientMetadata }) =>
    clientMetadata.redirect_uris.every((uri) => new URL(uri).hostname === "localhost")
      ? undefined
      : { code: "invalid_redirect_uri", description: "use http://localhost" },
};
const provider = new OAuthProvider(options);
const client = await getOAuthApi(options, env).createClient({
  redirectUris: [redirectUri],
  clientName: "by hand",
  tokenEndpointAuthMethod: "client_secret_basic",
});

createServer(async (incoming, outgoing) => {
  const hasBody = !["GET", "HEAD"].includes(incoming.method);
  const request = new Request(`http://127.0.0.1:${port}${incoming.url}`, {
    method: incoming.method,
    headers: incoming.headers,
    ...(hasBody ? { body: Readable.toWeb(incoming), duplex: "half" } : {}),
  });
  const response = await provider.fetch(request, { ...env }, { waitUntil: () => {}, props: {} });
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  outgoing.end(Buffer.from(await response.arrayBuffer()));
}).listen(Number(port), "127.0.0.1", () => console.log("listening", client.clientId, client.clientSecret));
