"""A client or a server that is made with EMQX's SDK for MCP over MQTT.

    peer.py client PORT SERVER-NAME
        prints the tools of the server, then calls a tool for each line of standard input
        and prints its result, all as JSON
    peer.py server PORT SERVER-ID SERVER-NAME
        serves the tool add until standard input ends
"""

import json
import os
import sys
import threading

import anyio
import anyio.to_thread
from mcp.client.mqtt import MqttTransportClient
from mcp.server.fastmcp import FastMCP
from mcp.shared.mqtt import MqttOptions, MqttTransportBase

# The SDK wants the broker to say that it has retained messages and wildcards. In MQTT 5 a
# broker that says nothing has them, and Mosquitto says nothing.
MqttTransportBase.assert_property = lambda *_: None


def say(value):
    print(json.dumps(value), flush=True)


async def client(port, name):
    connected = anyio.Event()

    async def on_connect(_, server, result):
        if server == name:
            if result[0] != "ok":
                say({"failed": str(result)})
            connected.set()

    options = MqttOptions(host="127.0.0.1", port=port)
    async with MqttTransportClient(
        "test", auto_connect_to_mcp_server=True, on_mcp_connect=on_connect, server_name_filter=name, mqtt_options=options
    ) as c:
        await c.start()
        await connected.wait()
        tools = await c.list_tools(name)
        say({"server": c.get_session(name).server_info.serverInfo.name, "tools": [t.name for t in tools.tools]})
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            call = json.loads(line)
            result = await c.call_tool(name, name=call["name"], arguments=call["arguments"])
            say({"error": bool(result.isError), "text": result.content[0].text})
        await c.deinitialize_mcp_server(name)
    say({"left": True})
    os._exit(0)  # a thread of the SDK goes on


def server(port, server_id, name):
    app = FastMCP(name, mqtt_server_description="adds", mqtt_client_id=server_id, mqtt_options=MqttOptions(host="127.0.0.1", port=port))

    @app.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers"""
        say({"added": [a, b]})
        return a + b

    def end():
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=end, daemon=True).start()
    app.run(transport="mqtt")


if sys.argv[1] == "client":
    anyio.run(client, int(sys.argv[2]), sys.argv[3])
else:
    server(int(sys.argv[2]), sys.argv[3], sys.argv[4])
