// A host of MCP Apps, with the reference bridge and the official client: it calls a tool, and
// shows the tool's view. /?tool=NAME&args=JSON&version=VERSION&theme=light|dark
import { AppBridge, PostMessageTransport, RESOURCE_MIME_TYPE, getToolUiResourceUri } from "@modelcontextprotocol/ext-apps/app-bridge";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const query = new URLSearchParams(location.search);
const host = (window.host = { links: [], sizes: [], messages: [], error: "", ready: false });
const info = { name: "apps-host", version: "1.0.0" };

async function show() {
  const version = query.get("version");
  const client = new Client(info, {
    capabilities: { extensions: { "io.modelcontextprotocol/ui": { mimeTypes: [RESOURCE_MIME_TYPE] } } },
    versionNegotiation: { mode: version >= "2026" ? { pin: version } : "legacy" },
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(query.get("path") || "/mcp", location.href)));
  host.client = client;
  host.extension = client.getServerCapabilities().extensions["io.modelcontextprotocol/ui"];
  const { tools } = await client.listTools();
  const tool = tools.find((t) => t.name === query.get("tool"));
  const uri = getToolUiResourceUri(tool);
  const { contents } = await client.readResource({ uri });
  if (contents.length !== 1 || contents[0].mimeType !== RESOURCE_MIME_TYPE) throw new Error("not a view: " + JSON.stringify(contents).slice(0, 200));
  host.document = { uri, size: contents[0].text.length, meta: contents[0]._meta };

  const frame = document.createElement("iframe");
  const sandbox = new URL("/sandbox.html", location.href);
  sandbox.hostname = "localhost"; // another origin than that of this page
  const ready = new Promise((resolve) => {
    addEventListener("message", function listen(e) {
      if (e.source !== frame.contentWindow || e.data.method !== "ui/notifications/sandbox-proxy-ready") return;
      removeEventListener("message", listen);
      resolve();
    });
  });
  frame.src = sandbox.href;
  document.body.append(frame);
  await ready;

  const theme = query.get("theme") || "light";
  document.body.className = theme;
  const bridge = new AppBridge(client, info, { openLinks: {}, serverTools: {}, serverResources: {} }, { hostContext: { theme, toolInfo: { tool }, displayMode: "inline", ...JSON.parse(query.get("context") || "{}") } });
  host.bridge = bridge;
  bridge.onsizechange = ({ width, height }) => {
    host.sizes.push({ width, height });
    if (height) frame.style.height = height + "px";
  };
  bridge.onopenlink = async ({ url }) => {
    host.links.push(url);
    return {};
  };
  const initialized = new Promise((resolve) => (bridge.oninitialized = resolve));
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  await bridge.sendSandboxResourceReady({ html: contents[0].text });
  await initialized;
  const args = JSON.parse(query.get("args") || "{}");
  await bridge.sendToolInput({ arguments: args });
  host.result = await client.callTool({ name: tool.name, arguments: args });
  await bridge.sendToolResult(host.result);

  // For tests: looks at the view and presses buttons in it.
  let last = 0;
  host.probe = (what) =>
    new Promise((resolve) => {
      const probe = ++last;
      addEventListener("message", function listen(e) {
        if (e.source !== frame.contentWindow || e.data.probed !== probe) return;
        removeEventListener("message", listen);
        resolve(e.data.value);
      });
      frame.contentWindow.postMessage({ probe, ...what }, "*");
    });
  // What a hostile view could do: any request of the protocol, past the buttons.
  host.fromView = (name, args) => host.probe({ say: { method: "tools/call", params: { name, arguments: args } } });
  host.teardown = () => bridge.teardownResource({});
  host.ready = true;
}

show().catch((e) => (host.error = String(e && e.stack)));
