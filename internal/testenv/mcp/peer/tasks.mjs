// A 3D printer made with version 1 of the SDK: MCP 2025-11-25, with tools that run only as tasks.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { InMemoryTaskMessageQueue, InMemoryTaskStore } from "@modelcontextprotocol/sdk/experimental/tasks/stores/in-memory.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";
import { listen } from "./garden.mjs";

const taskStore = new InMemoryTaskStore(), taskMessageQueue = new InMemoryTaskMessageQueue();
const sessions = new Map();
let prints = 0;

function text(said, isError = false) {
  return { isError, content: [{ type: "text", text: said }] };
}

// print works on a task in the background, a layer every 300 ms.
async function print(store, { taskId }, layers) {
  prints++;
  for (let i = 1; i <= layers; i++) {
    await store.updateTaskStatus(taskId, "working", `layer ${i} of ${layers}`);
    await new Promise((wake) => setTimeout(wake, 300));
    if ((await store.getTask(taskId)).status === "cancelled") return;
  }
  if (layers === 13) await store.storeTaskResult(taskId, "failed", text("out of filament", true));
  else await store.storeTaskResult(taskId, "completed", text(`printed ${layers} layers`));
}

function build() {
  const mcp = new McpServer({ name: "printer", version: "1.0.0" }, {
    capabilities: { tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } }, taskStore, taskMessageQueue,
  });
  mcp.experimental.tasks.registerToolTask("print", {
    description: "Print some layers", inputSchema: { layers: z.number().int() }, execution: { taskSupport: "required" },
  }, {
    createTask: async ({ layers }, extra) => {
      const task = await extra.taskStore.createTask({ ttl: extra.taskRequestedTtl, pollInterval: 500 });
      print(extra.taskStore, task, layers);
      return { task };
    },
    getTask: (_, extra) => extra.taskStore.getTask(extra.taskId),
    getTaskResult: (_, extra) => extra.taskStore.getTaskResult(extra.taskId),
  });
  mcp.registerTool("prints", { description: "Tell how often it has printed", inputSchema: {} }, () => text(String(prints)));
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
