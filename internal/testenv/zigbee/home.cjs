"use strict";
// The devices of the simulated radio: what they are, and the state that they keep while
// Zigbee2MQTT restarts.

const fs = require("node:fs");
const path = require("node:path");

// Each model has a definition in Zigbee2MQTT. The numbers are input clusters.
const MODELS = {
    plug: {manufacturer: "innr", model: "SP 120", clusters: [0, 3, 4, 5, 6, 0x0702, 0x0b04]},
    lamp: {manufacturer: "IKEA of Sweden", model: "TRADFRI bulb E27 CWS opal 600lm", clusters: [0, 3, 4, 5, 6, 8, 0x0300]},
    lock: {manufacturer: "Yale", model: "YRD256 TSDB", battery: true, clusters: [0, 1, 3, 9, 10, 0x0101]},
    blind: {manufacturer: "IKEA of Sweden", model: "FYRTUR block-out roller blind", battery: true, clusters: [0, 1, 3, 4, 5, 32, 0x0102]},
    heating: {manufacturer: "Eurotronic", model: "SPZB0001", battery: true, clusters: [0, 1, 3, 4, 10, 0x0201]},
    contact: {manufacturer: "eWeLink", model: "DS01", battery: true, clusters: [0, 1, 3, 0x0500]},
};

// The devices of a new home, by name.
const HOME = {plug: "plug", lamp: "lamp", door: "lock", blind: "blind", heating: "heating", contact: "contact"};

const COORDINATOR = "0x000000000000f000";

// The first state of every device, by cluster and attribute. A device answers only for the
// clusters that Zigbee2MQTT asks it about.
const attributes = (model) => ({
    genBasic: {
        modelId: model.model, manufacturerName: model.manufacturer, powerSource: model.battery ? 3 : 1,
        zclVersion: 8, appVersion: 1, stackVersion: 1, hwVersion: 1, dateCode: "20260101", swBuildId: "1.0.0",
    },
    genOnOff: {onOff: 0},
    genLevelCtrl: {currentLevel: 254},
    genPollCtrl: {checkinInterval: 14400},
    lightingColorCtrl: {colorMode: 2, colorTemperature: 370, currentX: 30000, currentY: 25000, colorCapabilities: 25},
    haElectricalMeasurement: {
        activePower: 0, rmsVoltage: 230, rmsCurrent: 0, acPowerMultiplier: 1, acPowerDivisor: 1,
        acCurrentMultiplier: 1, acCurrentDivisor: 1000, acVoltageMultiplier: 1, acVoltageDivisor: 1,
    },
    seMetering: {currentSummDelivered: 1234, multiplier: 1, divisor: 100},
    closuresDoorLock: {lockState: 1},
    closuresWindowCovering: {currentPositionLiftPercentage: 0},
    hvacThermostat: {localTemp: 2130, occupiedHeatingSetpoint: 2000, pIHeatingDemand: 0, systemMode: 4},
    genPowerCfg: {batteryPercentageRemaining: 180, batteryVoltage: 29},
    ssIasZone: {iasCieAddr: COORDINATOR, zoneState: 1, zoneStatus: 0},
});

// Home is all devices in reach of the radio. It is kept in a file.
class Home {
    constructor(directory) {
        this.directory = directory;
        this.file = path.join(directory, "home.json");
        this.devices = [];
        this.count = 0;
        if (fs.existsSync(this.file)) Object.assign(this, JSON.parse(fs.readFileSync(this.file, "utf8")));
        else for (const [name, kind] of Object.entries(HOME)) this.add(kind, name);
    }

    // add brings a new device into reach. It is named after its kind and its number.
    add(kind, name) {
        const number = ++this.count;
        const device = {
            kind, name: name ?? `${kind}${number}`, network: 0x1000 + number,
            address: `0x00158d00${number.toString(16).padStart(8, "0")}`, known: attributes(MODELS[kind]),
        };
        this.devices.push(device);
        this.save();
        return device;
    }

    remove(device) {
        this.devices = this.devices.filter((d) => d !== device);
        this.save();
    }

    find(key) {
        return this.devices.find((d) => d.name === key || d.address === key);
    }

    // save replaces the file in one step, because tests kill the process at any moment.
    save() {
        const {devices, count} = this;
        fs.writeFileSync(`${this.file}.part`, JSON.stringify({devices, count}));
        fs.renameSync(`${this.file}.part`, this.file);
    }

    // prepare writes the settings and the database with which Zigbee2MQTT starts, as if it
    // had paired these devices long ago.
    prepare({broker, user, password}) {
        const settings = path.join(this.directory, "configuration.yaml");
        if (fs.existsSync(settings)) return;
        const text = JSON.stringify; // JSON is YAML
        const named = Object.fromEntries(this.devices.map((d) => [d.address, {friendly_name: d.name}]));
        const mqtt = {server: broker, ...(user ? {user, password} : {})};
        fs.writeFileSync(settings, text({
            version: 5, mqtt, serial: {port: "/dev/null", adapter: "zstack"}, homeassistant: {enabled: true}, availability: {enabled: true},
            frontend: {enabled: false}, ota: {disable_automatic_update_check: true}, devices: named,
            advanced: {log_output: ["console"], log_level: "info", channel: 11},
        }));
        const endpoints = (inClusterList) => ({1: {profId: 260, epId: 1, devId: 0, inClusterList, outClusterList: [], clusters: {}, binds: [], configuredReportings: [], meta: {}}});
        const done = {epList: [1], interviewCompleted: true, interviewState: "SUCCESSFUL", meta: {}};
        const rows = [{id: 1, type: "Coordinator", ieeeAddr: COORDINATOR, nwkAddr: 0, manufId: 0, endpoints: endpoints([]), ...done}];
        for (const [i, {kind, address, network}] of this.devices.entries()) {
            const {battery, manufacturer, model, clusters} = MODELS[kind];
            rows.push({
                id: i + 2, type: battery ? "EndDevice" : "Router", ieeeAddr: address, nwkAddr: network, manufId: 0x1000, manufName: manufacturer,
                powerSource: battery ? "Battery" : "Mains (single phase)", modelId: model, swBuildId: "1.0.0", hwVersion: 1, lastSeen: Date.now(),
                endpoints: endpoints(clusters), ...done,
            });
        }
        fs.writeFileSync(path.join(this.directory, "database.db"), rows.map((row) => `${text(row)}\n`).join(""));
    }
}

module.exports = {COORDINATOR, Home, MODELS};
