// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * A guest without an operating system (multiboot): lists the PCI functions it was given on the first serial
 * port, proves that a test device is really there - registers, a DMA round trip, a message signalled interrupt -
 * and powers off. Lines:
 *   L2-BEGIN
 *   L2-PCI 00:02.0 10de:2684 class=030000 bar0=fd000000
 *   L2-TEST 00:02.0 live=edcba987 msicap=a0 st=00000002 dma=c0ffee22 irr=00000002
 *   L2-EDU 00:03.0 id=010000ed live=edcba987 msicap=40 st=00000000 dma=c0ffee11 irr=00000002
 *   L2-END
 * A Linux guest would take minutes here: emulation inside emulation is slow on code that runs once.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

#define COM1 0x3f8
#define REGISTER(address) (*(volatile u32 *)(address))
#define LOCAL_APIC 0xfee00000u
#define VECTOR 0x41
#define MAGIC 0x0be4ef01u /* first register of the test device (vfio_user.py) */
#define EDU 0x11e81234u   /* QEMU's educational device */
#define PATIENCE 100000000

struct function {
	int bus, slot, number;
};

__attribute__((section(".multiboot"), used, aligned(4)))
static const u32 multiboot[] = { 0x1badb002, 0, -(0x1badb002) };

static volatile u32 source, target;

static inline void out8(u16 port, u8 value) { __asm__ volatile("outb %0,%1" : : "a"(value), "Nd"(port)); }
static inline void out16(u16 port, u16 value) { __asm__ volatile("outw %0,%1" : : "a"(value), "Nd"(port)); }
static inline void out32(u16 port, u32 value) { __asm__ volatile("outl %0,%1" : : "a"(value), "Nd"(port)); }

static inline u8 in8(u16 port)
{
	u8 value;

	__asm__ volatile("inb %1,%0" : "=a"(value) : "Nd"(port));
	return value;
}

static inline u32 in32(u16 port)
{
	u32 value;

	__asm__ volatile("inl %1,%0" : "=a"(value) : "Nd"(port));
	return value;
}

static void put_char(char character)
{
	while (!(in8(COM1 + 5) & 0x20))
		;
	out8(COM1, character);
}

static void put(const char *text)
{
	for (; *text; text++) {
		if (*text == '\n')
			put_char('\r');
		put_char(*text);
	}
}

static void put_hex(u32 value, int digits)
{
	while (digits--)
		put_char("0123456789abcdef"[(value >> (digits * 4)) & 15]);
}

static void put_field(const char *name, u32 value, int digits)
{
	put(name);
	put_hex(value, digits);
}

static void put_address(const char *before, struct function f)
{
	put_field(before, f.bus, 2);
	put_field(":", f.slot, 2);
	put_field(".", f.number, 1);
}

static void select_register(struct function f, int offset)
{
	out32(0xcf8, 0x80000000u | f.bus << 16 | f.slot << 11 | f.number << 8 | (offset & ~3));
}

static u32 config_read(struct function f, int offset)
{
	select_register(f, offset);
	return in32(0xcfc);
}

static void config_write(struct function f, int offset, u32 value)
{
	select_register(f, offset);
	out32(0xcfc, value);
}

/* Switch memory and bus mastering on; return where BAR 0 is. */
static u32 enable(struct function f)
{
	config_write(f, 4, config_read(f, 4) | 6);
	return config_read(f, 0x10) & ~15u;
}

/* Point the function's MSI at this processor; return the capability's offset, 0 without one. */
static int route_msi(struct function f)
{
	int offset = config_read(f, 0x34) & 0xfc;

	for (int seen = 0; offset && seen < 48; seen++) {
		u32 head = config_read(f, offset);

		if ((head & 0xff) == 5) {
			int wide = head & (1u << 23) ? 4 : 0;

			REGISTER(LOCAL_APIC + 0xf0) |= 0x1ff; /* the APIC takes interrupts only when enabled */
			config_write(f, offset + 4, LOCAL_APIC);
			if (wide)
				config_write(f, offset + 8, 0);
			config_write(f, offset + 8 + wide, (config_read(f, offset + 8 + wide) & 0xffff0000u) | VECTOR);
			config_write(f, offset, (head & 0xff8fffffu) | 0x10000);
			return offset;
		}
		offset = head >> 8 & 0xfc;
	}
	return 0;
}

/* Interrupts stay off: an arrived one shows as its bit among the APIC's requests. */
static u32 arrived(void)
{
	for (int tries = 0; tries < 2000000; tries++)
		if (REGISTER(LOCAL_APIC + 0x220) & 2)
			break;
	return REGISTER(LOCAL_APIC + 0x220);
}

/* Both devices have the same copy engine registers; edu copies between memory and a buffer of its own. */
static u32 copy(u32 bar, u32 from, u32 to, u32 go)
{
	REGISTER(bar + 0x80) = from;
	REGISTER(bar + 0x84) = 0;
	REGISTER(bar + 0x88) = to;
	REGISTER(bar + 0x8c) = 0;
	REGISTER(bar + 0x90) = 4;
	REGISTER(bar + 0x94) = 0;
	REGISTER(bar + 0x98) = go;
	for (int tries = 0; tries < PATIENCE && (REGISTER(bar + 0x98) & 1); tries++)
		;
	return REGISTER(bar + 0x98);
}

static void put_liveness(struct function f, u32 bar)
{
	REGISTER(bar + 4) = 0x12345678;
	put_field(" live=", REGISTER(bar + 4), 8);
	put_field(" msicap=", route_msi(f), 2);
}

static void put_result(u32 state)
{
	put_field(" st=", state, 8);
	put_field(" dma=", target, 8);
	put_field(" irr=", arrived(), 8);
	put("\n");
}

static void test_device(struct function f, u32 bar)
{
	put_address("L2-TEST ", f);
	put_liveness(f, bar);
	source = 0xc0ffee22;
	target = 0;
	put_result(copy(bar, (u32)&source, (u32)&target, 1));
}

static void test_edu(struct function f, u32 bar)
{
	put_address("L2-EDU ", f);
	put_field(" id=", REGISTER(bar), 8);
	put_liveness(f, bar);
	source = 0xc0ffee11;
	target = 0;
	copy(bar, (u32)&source, 0x40000, 1);
	u32 state = copy(bar, 0x40000, (u32)&target, 3);

	REGISTER(bar + 0x60) = 1; /* raise an interrupt */
	put_result(state & 1);
	REGISTER(bar + 0x64) = 1;
}

static void test_nvme(struct function f, u32 bar)
{
	put_address("L2-NVME ", f);
	put_field(" cap=", REGISTER(bar + 4), 8);
	put_hex(REGISTER(bar), 8);
	put_field(" vs=", REGISTER(bar + 8), 8);
	put("\n");
}

static void show(struct function f, u32 id)
{
	u32 class = config_read(f, 8) >> 8, bar0 = config_read(f, 0x10), vendor = id & 0xffff;

	put_address("L2-PCI ", f);
	put_field(" ", vendor, 4);
	put_field(":", id >> 16, 4);
	put_field(" class=", class, 6);
	put_field(" bar0=", bar0, 8);
	put("\n");
	if (!(bar0 & ~15u) || bar0 & 1)
		return;
	if (id == EDU)
		test_edu(f, enable(f));
	else if (class == 0x010802)
		test_nvme(f, enable(f));
	else if (vendor != 0x8086 && vendor != 0x1234 && vendor != 0x1af4 && REGISTER(enable(f)) == MAGIC)
		test_device(f, enable(f));
}

static void scan(int bus)
{
	for (int slot = 0; slot < 32; slot++) {
		for (int number = 0; number < 8; number++) {
			struct function f = { bus, slot, number };
			u32 id = config_read(f, 0), header;

			if ((id & 0xffff) == 0xffff) {
				if (!number)
					break;
				continue;
			}
			show(f, id);
			header = config_read(f, 0xc) >> 16;
			if ((header & 0x7f) == 1) {
				int below = config_read(f, 0x18) >> 8 & 255;

				if (below > bus)
					scan(below);
			}
			if (!number && !(header & 0x80))
				break;
		}
	}
}

u8 stack[16384];

void cmain(void)
{
	out8(COM1 + 1, 0);
	out8(COM1 + 3, 3);
	put("L2-BEGIN\n");
	scan(0);
	put("L2-END\n");
	out16(0x604, 0x2000);  /* ACPI power-off: machine pc and q35 */
	out16(0xb004, 0x2000); /* the same, older machines */
	for (;;)
		__asm__ volatile("hlt");
}

__asm__(".globl _start\n_start: cli\n mov $stack+16384,%esp\n call cmain\n");
