// Prints the discovery messages that Zigbee2MQTT publishes for each device that it
// supports, one JSON object a line: {"topic": "...", "payload": "...", "retain": true}.
// The payload is a text with the bytes that a broker would get. Two runs print the same.
//
// It runs Zigbee2MQTT's own extension for Home Assistant with one pretended device for each
// definition, without a radio and without a broker. If what a device offers depends on the
// single device, its definition is asked for the general case.

import {once} from "node:events";
import fs from "node:fs";
import {createRequire} from "node:module";
import os from "node:os";
import path from "node:path";

// The program reads its settings when it is loaded.
const settings = fs.mkdtempSync(path.join(os.tmpdir(), "zigbee-corpus-"));
process.on("exit", () => fs.rmSync(settings, {recursive: true, force: true}));
process.env.ZIGBEE2MQTT_DATA = settings;
fs.writeFileSync(
    path.join(settings, "configuration.yaml"),
    JSON.stringify({version: 5, mqtt: {server: "mqtt://127.0.0.1:1"}, homeassistant: {enabled: true}, advanced: {log_output: []}}),
);

const outside = createRequire(import.meta.url);
const program = path.dirname(outside.resolve("zigbee2mqtt/package.json"));
const inside = createRequire(path.join(program, "package.json"));
const load = (name) => inside(path.join(program, "dist", name));

load("util/logger").default.init();
const {HomeAssistant} = load("extension/homeassistant");
const {default: Device} = load("model/device");
const {prepareDefinition} = inside("zigbee-herdsman-converters");
const library = path.dirname(inside.resolve("zigbee-herdsman-converters"));
const {default: definitions} = inside(path.join(library, "devices", "index.js"));

// Zigbee2MQTT recognizes endpoints by the name of their class.
class Endpoint {
    meta = {};
    clusters = {};
    inputClusters = [];
    outputClusters = [];
    constructor(owner, ID) {
        this.ID = ID;
        this.deviceIeeeAddress = owner.ieeeAddr;
        this.getDevice = () => owner;
    }
    getInputClusters() { return []; }
    getOutputClusters() { return []; }
    supportsInputCluster() { return false; }
    supportsOutputCluster() { return false; }
}

// PretendedDevice is a device of Zigbee2MQTT's own class with one definition.
class PretendedDevice extends Device {
    constructor(definition, number) {
        const [fingerprint] = definition.fingerprint ?? [];
        const hardware = {
            ieeeAddr: `0x00158d00${number.toString(16).padStart(8, "0")}`,
            modelID: definition.zigbeeModel?.[0] ?? fingerprint?.modelID ?? definition.model,
            manufacturerName: fingerprint?.manufacturerName ?? definition.vendor,
            isDummyDevice: true, // definitions give the general case then
            type: "Router", softwareBuildID: "1.0.0", hardwareVersion: 1, interviewState: "SUCCESSFUL", meta: {}, customClusters: {},
        };
        hardware.getEndpoint = (ID) => new Endpoint(hardware, ID);
        hardware.endpoints = [hardware.getEndpoint(1)];
        super(hardware);
        this.definition = definition;
        // Names stand in topics.
        this.label = `${definition.vendor} ${definition.model} ${number}`.replace(/[+#/\0]/g, "-");
    }
    get options() { return {ID: this.ieeeAddr, friendly_name: this.label}; }
    get interviewed() { return true; }
    // The extension changes what it gets, and devices of a model share it.
    exposes() { return JSON.parse(JSON.stringify(super.exposes())); }
}

// The parts of the program that the extension uses.
const devices = [];
const zigbee = {
    firstCoordinatorEndpoint: () => ({deviceIeeeAddress: "0x000000000000f000"}),
    getCoordinatorVersion: async () => ({type: "EmberZNet", meta: {revision: "7.4.4 [GA]"}}),
    devicesIterator: () => devices,
    devicesAndGroupsIterator: () => devices,
    groupsIterator: () => [],
    resolveEntity: (key) => devices.find((device) => device.ID === key || device.name === key),
};
const mqtt = {
    async publish(topic, payload, {baseTopic = "zigbee2mqtt", clientOptions = {}} = {}) {
        if (/[+#]/.test(topic)) return; // the program refuses to publish it, too
        const line = JSON.stringify({topic: `${baseTopic}/${topic}`, payload, retain: clientOptions.retain ?? false});
        if (!process.stdout.write(`${line}\n`)) await once(process.stdout, "drain");
    },
    async subscribe() {},
    async unsubscribe() {},
};
const state = {exists: () => false, get: () => ({})};
const events = new Proxy({}, {get: () => () => {}});
const nothing = async () => {};

const extension = new HomeAssistant(zigbee, mqtt, state, nothing, events, nothing, nothing, nothing);
// It would wait for retained messages.
const {setTimeout} = globalThis;
globalThis.setTimeout = () => {};
await extension.start();
globalThis.setTimeout = setTimeout;

await extension.discover(extension.bridge);
for (const [i, definition] of definitions.entries()) {
    const device = new PretendedDevice(prepareDefinition(definition), i + 1);
    devices.push(device);
    await extension.discover(device);
}
