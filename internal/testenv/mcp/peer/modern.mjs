// A device made with version 2 of the SDK: MCP 2026-07-28, without sessions.
import { createServer } from "node:http";
import { completable, createMcpHandler, inputRequired, inputResponse, McpServer, ResourceTemplate } from "@modelcontextprotocol/server";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { z } from "zod";
import { listen, opened, plant, question, roof } from "./garden.mjs";

function progress(ctx, done, total, message) {
  const progressToken = ctx.mcpReq._meta?.progressToken;
  if (progressToken === undefined) return;
  return ctx.mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress: done, total, message } });
}

const handler = createMcpHandler(() => {
  const mcp = new McpServer({ name: "garden", version: "2.0.0" }, {
    capabilities: { resources: { subscribe: true, listChanged: true }, completions: {} }, instructions: "Mind the roses.",
  });
  plant(mcp, { ResourceTemplate, completable, args: z.object }, {
    progress, updated: (uri) => handler.notify.resourceUpdated(uri), bought: () => handler.notify.toolsChanged(), cancelled: (ctx) => ctx.mcpReq.signal,
  });
  mcp.registerTool("open_roof", roof, (_, ctx) => {
    const answer = inputResponse(ctx.mcpReq.inputResponses, "roof");
    return answer.kind === "elicit" ? opened(answer) : inputRequired({ inputRequests: { roof: inputRequired.elicit(question) } });
  });
  return mcp;
}, { legacy: "reject" });

listen(createServer(toNodeHandler(handler)));
