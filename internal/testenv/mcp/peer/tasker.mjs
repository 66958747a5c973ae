// An agent made with version 1 of the SDK, which uses the garden with tasks of MCP 2025-11-25. It
// prints, as JSON, what it has seen.
//
//   node tasker.mjs URL            over HTTP
//   node tasker.mjs PROGRAM ARGS   on standard input and output
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema, ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const [command, ...args] = process.argv.slice(2);
const seen = { asked: [], support: {}, calls: {} };
const client = new Client({ name: "tasker", version: "1.0.0" }, { capabilities: { elicitation: { form: {} }, tasks: {} } });
const { tasks } = client.experimental;
client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
  seen.asked.push({ message: params.message, task: params._meta?.["io.modelcontextprotocol/related-task"]?.taskId });
  return { action: "accept", content: { minutes: 5, why: "heat" } };
});
await client.connect(command.startsWith("http") ? new StreamableHTTPClientTransport(new URL(command))
  : new StdioClientTransport({ command, args, env: process.env }));
seen.capability = client.getServerCapabilities().tasks;

// The garden may be there a moment after the gateway.
for (let i = 0; i < 100 && !("garden__water" in seen.support); i++) {
  for (const tool of (await client.listTools()).tools) seen.support[tool.name] = tool.execution?.taskSupport ?? "none";
  await new Promise((wake) => setTimeout(wake, 100));
}

// So may the store of tasks.
for (let i = 0; i < 100 && (await tasks.getTask("A".repeat(26)).catch((e) => e.code)) !== -32602; i++) {
  await new Promise((wake) => setTimeout(wake, 100));
}

// call calls a tool, and returns the types of the messages, the last status and the outcome.
async function call(name, args, options, eachStatus) {
  const out = { types: [] };
  for await (const m of tasks.callToolStream({ name: "garden__" + name, arguments: args }, CallToolResultSchema, options)) {
    if (out.types.at(-1) !== m.type) out.types.push(m.type);
    if (m.task) Object.assign(out, { id: m.task.taskId, status: m.task.status, message: m.task.statusMessage });
    if (m.type === "taskStatus") await eachStatus?.(m.task);
    if (m.type === "result") Object.assign(out, { text: m.result.content?.[0]?.text, isError: m.result.isError ?? false });
    if (m.type === "error") out.error = m.error.message;
  }
  seen.calls[name] = out;
}

await call("water", { litres: 2 }); // its task support says that it is a task
await call("open_roof", {});
await call("prune", { tree: "oak" }, { task: { ttl: 60000 } });
let cancelled = false;
await call("rest", {}, { task: {} }, async ({ taskId, statusMessage }) => {
  if (!statusMessage?.includes("resting") || cancelled) return;
  cancelled = true;
  seen.cancelled = (await tasks.cancelTask(taskId)).status;
});
await call("measure", { bed: "north" }); // not a task
seen.again = await tasks.cancelTask(seen.calls.water.id).catch((e) => e.code);
const { _meta, content } = await tasks.getTaskResult(seen.calls.water.id, CallToolResultSchema);
seen.result = { text: content[0].text, task: _meta["io.modelcontextprotocol/related-task"].taskId };
seen.unknown = await tasks.getTask("unknown").catch((e) => e.code);
seen.listed = (await tasks.listTasks()).tasks.map((task) => task.taskId).sort();
console.log(JSON.stringify(seen));
await client.close();
