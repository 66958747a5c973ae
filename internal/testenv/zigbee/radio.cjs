"use strict";
// A simulated radio for an unchanged Zigbee2MQTT, loaded before it:
//
//   ZIGBEE2MQTT_DATA=DIR BROKER=mqtt://127.0.0.1:1883 node -r ./radio.cjs node_modules/zigbee2mqtt/index.js
//
// zigbee-herdsman has an abstract class for radios and a function that creates one. This
// file replaces the function. Its devices obey, answer and report. Lines on the standard
// input change that, and the process ends with it:
//
//   silent NAME    the device does nothing, and never answers
//   mute NAME      it obeys and answers, and does not report
//   refuse NAME    it answers with a failure
//   normal NAME
//   toggle NAME    a contact opens or closes
//   measure NAME CLUSTER ATTRIBUTE NUMBER    it reports a new value by itself
//   join KIND      a new device joins, if Zigbee2MQTT permits it
//
// Each line is answered with a line that begins with "radio: ". Commands that a device gets
// are printed as "radio got: NAME CLUSTER COMMAND".

const path = require("node:path");
const readline = require("node:readline");
const {createRequire} = require("node:module");
const {COORDINATOR, Home, MODELS} = require("./home.cjs");

const load = createRequire(process.argv[1]);
const {Zcl, Zdo} = load("zigbee-herdsman");
const {Adapter} = load(path.join(path.dirname(load.resolve("zigbee-herdsman")), "adapter"));

const {GLOBAL, SPECIFIC} = Zcl.FrameType;
const after = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const say = (text) => console.log(`radio: ${text}`);

const home = new Home(process.env.ZIGBEE2MQTT_DATA);
home.prepare({broker: process.env.BROKER, user: process.env.MQTT_USER, password: process.env.MQTT_PASSWORD});

class Radio extends Adapter {
    behavior = new Map(); // silent, mute or refuse, by name
    timers = new Map(); // of moving blinds, by name
    permitted = false;

    async start() {
        current = this;
        return "resumed";
    }
    async stop() {
        for (const timer of this.timers.values()) clearInterval(timer);
    }
    async reset() {}
    async getCoordinatorIEEE() { return COORDINATOR; }
    async getCoordinatorVersion() { return {type: "Simulated", meta: {revision: "1"}}; }
    async getNetworkParameters() { return {panID: 0x1a62, extendedPanID: "0xdddddddddddddddd", channel: 11, nwkUpdateID: 0}; }
    async supportsBackup() { return false; }
    async backup() { throw new Error("the simulated radio has no backup"); }
    async addInstallCode() {}
    async permitJoin(seconds) { this.permitted = seconds > 0; }
    waitFor() { return {promise: new Promise(() => {}), cancel: () => {}}; }
    async sendZclFrameToGroup() {}
    async sendZclFrameToAll() {}
    async setChannelInterPAN() {}
    async restoreChannelInterPAN() {}
    async sendZclFrameInterPANToIeeeAddr() {}
    async sendZclFrameInterPANBroadcast() {}

    // sendZdo answers questions about the network and about what a device is.
    async sendZdo(address, network, cluster, payload, unanswered) {
        if (unanswered) return undefined;
        const empty = {startIndex: 0, entryList: []};
        const device = home.find(address);
        const model = device && MODELS[device.kind];
        switch (cluster) {
            case Zdo.ClusterId.LQI_TABLE_REQUEST: return [0, {neighborTableEntries: 0, ...empty}];
            case Zdo.ClusterId.ROUTING_TABLE_REQUEST: return [0, {routingTableEntries: 0, ...empty}];
            case Zdo.ClusterId.BINDING_TABLE_REQUEST: return [0, {bindingTableEntries: 0, ...empty}];
        }
        if (address !== COORDINATOR && (!device || this.behavior.get(device.name) === "silent")) throw new Error("no answer from the device");
        switch (cluster) {
            case Zdo.ClusterId.NODE_DESCRIPTOR_REQUEST: return [0, {nwkAddress: network, logicalType: !model ? 0 : model.battery ? 2 : 1, manufacturerCode: 0x1000}];
            case Zdo.ClusterId.ACTIVE_ENDPOINTS_REQUEST: return [0, {nwkAddress: network, endpointList: [1]}];
            case Zdo.ClusterId.SIMPLE_DESCRIPTOR_REQUEST: return [0, {nwkAddress: network, endpoint: 1, profileId: 260, deviceId: 0, inClusterList: model?.clusters ?? [], outClusterList: []}];
            case Zdo.ClusterId.LEAVE_REQUEST:
                if (device) home.remove(device);
        }
        return [0, {}];
    }

    // sendZclFrameToEndpoint passes a request to a device, and returns its answer.
    async sendZclFrameToEndpoint(address, network, endpoint, frame, timeout, unanswered) {
        await after(20);
        const device = home.find(address);
        const {cluster, command, header} = frame;
        if (device && !header.isGlobal) console.log(`radio got: ${device.name} ${cluster.name} ${command.name}`);
        const behavior = this.behavior.get(device?.name);
        if (!device || behavior === "silent") throw new Error("no answer from the device");
        const answer = (type, name, body) =>
            this.payload(device, Zcl.Frame.create(type, Zcl.Direction.SERVER_TO_CLIENT, true, header.manufacturerCode, header.transactionSequenceNumber, name, cluster, body, {}));
        if (header.isGlobal) {
            const body = this.global(device, frame, behavior === "refuse");
            if (body) return answer(GLOBAL, ...body);
            if (unanswered) return undefined;
            return answer(GLOBAL, "defaultRsp", {cmdId: command.ID, statusCode: 0});
        }
        if (behavior === "refuse") throw new Zcl.StatusError(Zcl.Status.FAILURE);
        this.obey(device, cluster, command.name, frame.payload);
        if (unanswered) return undefined;
        if (command.response === undefined) return answer(GLOBAL, "defaultRsp", {cmdId: command.ID, statusCode: 0});
        const response = Object.values(cluster.commandsResponse).find((c) => c.ID === command.response);
        return answer(SPECIFIC, response.name, Object.fromEntries(response.parameters.map((p) => [p.name, 0])));
    }

    // global returns the answer to a request that all clusters have.
    global(device, {cluster, command, payload}, refuse) {
        const known = (device.known[cluster.name] ??= {});
        const attribute = (id) => Object.values(cluster.attributes).find((a) => a.ID === id);
        switch (command.name) {
            case "read":
                return ["readRsp", payload.map(({attrId}) => {
                    const found = attribute(attrId);
                    const attrData = found && known[found.name];
                    if (attrData === undefined) return {attrId, status: Zcl.Status.UNSUPPORTED_ATTRIBUTE};
                    return {attrId, status: 0, dataType: found.type, attrData};
                })];
            case "write":
                if (refuse) return ["writeRsp", payload.map(({attrId}) => ({status: Zcl.Status.READ_ONLY, attrId}))];
                console.log(`radio got: ${device.name} ${cluster.name} write`);
                this.change(device, cluster, Object.fromEntries(payload.map(({attrId, attrData}) => [attribute(attrId)?.name ?? attrId, attrData])));
                return ["writeRsp", [{status: 0}]];
            case "configReport":
                return ["configReportRsp", [{status: 0}]];
        }
        return undefined;
    }

    // obey does what a command says.
    obey(device, cluster, command, payload) {
        const turn = (onOff) => {
            this.change(device, Zcl.Utils.getCluster("genOnOff"), {onOff});
            if (device.kind === "plug") this.change(device, Zcl.Utils.getCluster("haElectricalMeasurement"), {activePower: onOff * 42, rmsCurrent: onOff * 183});
        };
        const commands = {
            on: () => turn(1),
            off: () => turn(0),
            offWithEffect: () => turn(0),
            toggle: () => turn(1 - device.known.genOnOff.onOff),
            moveToLevel: () => this.change(device, cluster, {currentLevel: payload.level}),
            moveToLevelWithOnOff: () => {
                this.change(device, cluster, {currentLevel: payload.level});
                turn(payload.level > 0 ? 1 : 0);
            },
            moveToColor: () => this.change(device, cluster, {currentX: payload.colorx, currentY: payload.colory, colorMode: 1}),
            moveToColorTemp: () => this.change(device, cluster, {colorTemperature: payload.colortemp, colorMode: 2}),
            lockDoor: () => this.change(device, cluster, {lockState: 1}),
            unlockDoor: () => this.change(device, cluster, {lockState: 2}),
            upOpen: () => this.move(device, cluster, 0),
            downClose: () => this.move(device, cluster, 100),
            goToLiftPercentage: () => this.move(device, cluster, payload.percentageliftvalue),
            stop: () => clearInterval(this.timers.get(device.name)),
        };
        commands[command]?.();
    }

    // move moves a blind by ten percent each 200 ms.
    move(device, cluster, target) {
        clearInterval(this.timers.get(device.name));
        const timer = setInterval(() => {
            const position = device.known[cluster.name].currentPositionLiftPercentage;
            const step = Math.max(-10, Math.min(10, target - position));
            if (step === 0) clearInterval(timer);
            else this.change(device, cluster, {currentPositionLiftPercentage: position + step});
        }, 200);
        this.timers.set(device.name, timer);
    }

    // change sets attributes and reports them.
    change(device, cluster, values) {
        Object.assign((device.known[cluster.name] ??= {}), values);
        home.save();
        if (this.behavior.has(device.name)) return;
        const body = Object.entries(values)
            .filter(([name]) => cluster.attributes[name])
            .map(([name, attrData]) => ({attrId: cluster.attributes[name].ID, dataType: cluster.attributes[name].type, attrData}));
        if (body.length > 0) setTimeout(() => this.report(device, cluster, GLOBAL, "report", body), 30);
    }

    report(device, cluster, type, name, body) {
        this.emit("zclPayload", this.payload(device, Zcl.Frame.create(type, Zcl.Direction.SERVER_TO_CLIENT, true, undefined, 1, name, cluster, body, {})));
    }

    payload(device, frame) {
        const data = frame.toBuffer();
        return {
            clusterID: frame.cluster.ID, header: Zcl.Header.fromBuffer(data), data, address: device.network, endpoint: 1,
            linkquality: 120, groupID: 0, wasBroadcast: false, destinationEndpoint: 1,
        };
    }

    // control carries out a line of the standard input, and returns the answer to it.
    control([word, name, clusterName, attribute, number]) {
        if (word === "join") {
            if (!this.permitted) return "join refused";
            const joined = home.add(name);
            this.emit("deviceJoined", {networkAddress: joined.network, ieeeAddr: joined.address});
            return `join ${joined.name} ${joined.address}`;
        }
        const device = home.find(name);
        if (!device) return `no device ${name}`;
        if (word === "normal") this.behavior.delete(name);
        else if (word === "toggle") {
            const zone = device.known.ssIasZone;
            zone.zoneStatus = 1 - zone.zoneStatus;
            home.save();
            this.report(device, Zcl.Utils.getCluster("ssIasZone"), SPECIFIC, "statusChangeNotification", {zonestatus: zone.zoneStatus, extendedstatus: 0, zoneID: 0, delay: 0});
        } else if (word === "measure") this.change(device, Zcl.Utils.getCluster(clusterName), {[attribute]: Number(number)});
        else this.behavior.set(name, word);
        return `${word} ${name}`;
    }
}

let current;
Adapter.create = async (...options) => new Radio(...options);
readline
    .createInterface({input: process.stdin})
    .on("line", (line) => say(current ? current.control(line.split(" ")) : "not started"))
    .on("close", () => process.exit());
