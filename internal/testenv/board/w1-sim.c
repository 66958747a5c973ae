//go:build ignore

// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// A simulated 1-Wire bus with one DS18B20, 28-0316a2794bff. The parameter raw is its temperature
// in units of 1/16 degree, and the parameter noise makes checksums wrong.
#include <linux/module.h>
#include <linux/w1.h>

static int raw = 370; // 23.125 degrees
module_param(raw, int, 0644);
static bool noise;
module_param(noise, bool, 0644);

static u8 scratchpad[9] = { 0, 0, 0x4b, 0x46, 0x7f, 0xff, 0x0e, 0x10 };
static int next = -1; // the index of the next byte to read; -1 if nothing is read
static int skip;      // bytes of the address that are still to come

static u8 reset_bus(void *data)
{
	next = -1;
	skip = 0;
	return 0; // somebody is there
}

static u8 touch_bit(void *data, u8 bit)
{
	return 1; // it has a power supply, and a conversion takes no time
}

static void write_byte(void *data, u8 byte)
{
	if (skip > 0) {
		skip--;
		return;
	}
	switch (byte) {
	case W1_MATCH_ROM:
		skip = 8;
		break;
	case 0xbe: // read the scratchpad
		scratchpad[0] = raw;
		scratchpad[1] = raw >> 8;
		scratchpad[8] = w1_calc_crc8(scratchpad, 8) ^ (noise ? 1 : 0);
		next = 0;
		break;
	}
}

static u8 read_byte(void *data)
{
	return next >= 0 && next < sizeof(scratchpad) ? scratchpad[next++] : 0xff;
}

static void search(void *data, struct w1_master *master, u8 type, w1_slave_found_callback found)
{
	u64 id = 0x0316a2794bffULL << 8 | 0x28;
	__le64 little = cpu_to_le64(id);

	found(master, id | (u64)w1_calc_crc8((u8 *)&little, 7) << 56);
}

static struct w1_bus_master bus = {
	.reset_bus = reset_bus,
	.touch_bit = touch_bit,
	.write_byte = write_byte,
	.read_byte = read_byte,
	.search = search,
};

static int __init sim_init(void)
{
	return w1_add_master_device(&bus);
}

static void __exit sim_exit(void)
{
	w1_remove_master_device(&bus);
}

module_init(sim_init);
module_exit(sim_exit);
MODULE_LICENSE("GPL");
