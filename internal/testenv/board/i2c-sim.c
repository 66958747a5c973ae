//go:build ignore

// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// A simulated I2C bus that does plain I2C, which i2c-stub does not. At address 0x50 is a memory
// of 256 bytes: the first byte that is written sets its pointer, which moves on with each further
// byte that is written or read.
#include <linux/i2c.h>
#include <linux/module.h>

static u8 memory[256];
static u8 pointer;

static int transfer(struct i2c_adapter *adapter, struct i2c_msg *messages, int count)
{
	int i, j;

	for (i = 0; i < count; i++) {
		struct i2c_msg *m = &messages[i];

		if (m->addr != 0x50)
			return -ENXIO;
		for (j = 0; j < m->len; j++) {
			if (m->flags & I2C_M_RD)
				m->buf[j] = memory[pointer++];
			else if (j == 0)
				pointer = m->buf[0];
			else
				memory[pointer++] = m->buf[j];
		}
	}
	return count;
}

static u32 abilities(struct i2c_adapter *adapter)
{
	return I2C_FUNC_I2C | I2C_FUNC_SMBUS_EMUL;
}

static const struct i2c_algorithm algorithm = {
	.master_xfer = transfer,
	.functionality = abilities,
};

static struct i2c_adapter adapter = {
	.owner = THIS_MODULE,
	.algo = &algorithm,
	.name = "plain I2C simulator",
};

static int __init sim_init(void)
{
	return i2c_add_adapter(&adapter);
}

static void __exit sim_exit(void)
{
	i2c_del_adapter(&adapter);
}

module_init(sim_init);
module_exit(sim_exit);
MODULE_LICENSE("GPL");
