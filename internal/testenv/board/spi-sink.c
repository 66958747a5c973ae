//go:build ignore

// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// A simulated SPI controller with one device, which is /dev/spidev0.0. It keeps what the last
// transfer sent, and its speed, in debugfs: spi-sink/sent and spi-sink/speed.
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/spi/spi.h>

static u8 data[65536];
static struct debugfs_blob_wrapper sent = { .data = data };
static u32 speed;
static struct dentry *dir;
static struct platform_device *parent;
static struct spi_controller *controller;

static int transfer(struct spi_controller *c, struct spi_device *d, struct spi_transfer *t)
{
	sent.size = min_t(size_t, t->len, sizeof(data));
	if (t->tx_buf)
		memcpy(data, t->tx_buf, sent.size);
	speed = t->speed_hz;
	return 0;
}

static int __init sink_init(void)
{
	// spidev refuses to be named itself; this is one of the names that it serves.
	struct spi_board_info info = { .modalias = "dh2228fv", .max_speed_hz = 10000000 };
	int err;

	parent = platform_device_register_simple("spi-sink", 0, NULL, 0);
	if (IS_ERR(parent))
		return PTR_ERR(parent);
	controller = spi_alloc_master(&parent->dev, 0);
	if (!controller) {
		platform_device_unregister(parent);
		return -ENOMEM;
	}
	controller->bus_num = 0;
	controller->num_chipselect = 1;
	controller->mode_bits = SPI_CPOL | SPI_CPHA;
	controller->transfer_one = transfer;
	err = spi_register_controller(controller);
	if (err) {
		spi_controller_put(controller);
		platform_device_unregister(parent);
		return err;
	}
	if (!spi_new_device(controller, &info))
		pr_err("spi-sink: no device\n");
	dir = debugfs_create_dir("spi-sink", NULL);
	debugfs_create_blob("sent", 0444, dir, &sent);
	debugfs_create_u32("speed", 0444, dir, &speed);
	return 0;
}

static void __exit sink_exit(void)
{
	debugfs_remove_recursive(dir);
	spi_unregister_controller(controller);
	platform_device_unregister(parent);
}

module_init(sink_init);
module_exit(sink_exit);
MODULE_LICENSE("GPL");
