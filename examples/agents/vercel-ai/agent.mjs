// The portal behind Vercel's AI SDK. It needs OPENAI_API_KEY.
// With PORTAL_URL and PORTAL_TOKEN it uses a portal that serves over HTTP, else it starts one.

import { createMCPClient } from "@ai-sdk/mcp";
import { Experimental_StdioMCPTransport as StdioTransport } from "@ai-sdk/mcp/mcp-stdio";
import { openai } from "@ai-sdk/openai";
import { ToolLoopAgent } from "ai";

const { PORTAL_URL, PORTAL_TOKEN } = process.env;
const manifest = new URL("../portal.yaml", import.meta.url).pathname;

const portal = await createMCPClient({
  transport: PORTAL_URL
    ? { type: "http", url: PORTAL_URL, headers: { Authorization: `Bearer ${PORTAL_TOKEN}` } }
    : new StdioTransport({ command: "mcp-code-portal", args: ["serve", "--config", manifest] }),
});
try {
  const agent = new ToolLoopAgent({ model: openai("gpt-5.6-terra"), tools: await portal.tools() });
  const { text } = await agent.generate({
    prompt: "It is noon in Tokyo. What time is it in Lima and in Nairobi?",
  });
  console.log(text);
} finally {
  await portal.close();
}
