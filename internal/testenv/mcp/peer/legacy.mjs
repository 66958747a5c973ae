// A device made with version 1 of the SDK: MCP up to 2025-11-25, with sessions.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer, ResourceTemplate } from "@modelcontextprotocol/sdk/server/mcp.js";
import { completable } from "@modelcontextprotocol/sdk/server/completable.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { ElicitResultSchema, SubscribeRequestSchema, UnsubscribeRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { listen, mow, opened, plant, question, roof } from "./garden.mjs";

const sessions = new Map(); // transports by session id
const subscribers = new Map(); // sets of URIs by server

async function updated(uri) {
  for (const [server, uris] of subscribers) {
    if (uris.has(uri)) await server.sendResourceUpdated({ uri });
  }
}

function progress(ctx, done, total, message) {
  const progressToken = ctx._meta?.progressToken;
  if (progressToken === undefined) return;
  return ctx.sendNotification({ method: "notifications/progress", params: { progressToken, progress: done, total, message } });
}

function build() {
  const mcp = new McpServer({ name: "garden", version: "1.0.0" }, {
    capabilities: { resources: { subscribe: true, listChanged: true }, completions: {} }, instructions: "Mind the roses.",
  });
  plant(mcp, { ResourceTemplate, completable, args: (shape) => shape }, {
    progress, updated, bought: () => mow(mcp), cancelled: (ctx) => ctx.signal,
  });
  mcp.registerTool("open_roof", roof, async (_, ctx) =>
    opened(await ctx.sendRequest({ method: "elicitation/create", params: { mode: "form", ...question } }, ElicitResultSchema)));
  const uris = new Set();
  subscribers.set(mcp.server, uris);
  mcp.server.onclose = () => subscribers.delete(mcp.server);
  mcp.server.setRequestHandler(SubscribeRequestSchema, ({ params }) => (uris.add(params.uri), {}));
  mcp.server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => (uris.delete(params.uri), {}));
  return mcp;
}

listen(createServer(async (req, res) => {
  let transport = sessions.get(req.headers["mcp-session-id"]);
  if (!transport && req.headers["mcp-session-id"]) return res.writeHead(404).end();
  if (!transport) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID, onsessioninitialized: (id) => sessions.set(id, transport), onsessionclosed: (id) => sessions.delete(id),
    });
    await build().connect(transport);
  }
  await transport.handleRequest(req, res);
}));
