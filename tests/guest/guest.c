/* Bare-metal multiboot guest that lives as its kernel arguments say, for tests of the launcher. Lines go to COM1.
 *   off      powers off at once
 *   button   powers off when somebody presses the power button
 *   stay     never ends, deaf to the button
 *   again    resets the machine once, then powers off
 */
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

__attribute__((section(".multiboot"), used, aligned(4))) static const u32 header[] = {0x1badb002, 0, -(0x1badb002)};

enum { PM1_STATUS = 0x600, PM1_ENABLE = 0x602, PM1_CONTROL = 0x604, BUTTON = 1 << 8, SLEEP = 1 << 13, MARK = 0xa5 };

static inline void outb(u16 port, u8 value) { __asm__ volatile("outb %0,%1" ::"a"(value), "Nd"(port)); }
static inline void outw(u16 port, u16 value) { __asm__ volatile("outw %0,%1" ::"a"(value), "Nd"(port)); }
static inline u8 inb(u16 port) { u8 v; __asm__ volatile("inb %1,%0" : "=a"(v) : "Nd"(port)); return v; }
static inline u16 inw(u16 port) { u16 v; __asm__ volatile("inw %1,%0" : "=a"(v) : "Nd"(port)); return v; }

static void put(const char *text) {
  for (; *text; text++) {
    while (!(inb(0x3fd) & 0x20)) {}
    outb(0x3f8, *text);
  }
}

static int has(const char *text, const char *word) {
  for (; *text; text++) {
    int i = 0;
    while (word[i] && text[i] == word[i]) i++;
    if (!word[i]) return 1;
  }
  return 0;
}

static void off(void) {
  put("GUEST-OFF\n");
  outw(PM1_CONTROL, SLEEP);
  for (;;) {}
}

/* a byte of the clock's memory, which outlives a reset */
static u8 scratch(void) {
  outb(0x70, 0x70);
  return inb(0x71);
}

u8 stack[4096];

void guest(const u32 *info) {
  const char *arguments = (info[0] & 4) ? (const char *)info[4] : "";
  put("GUEST-BEGIN ");
  put(arguments);
  put("\n");
  if (has(arguments, "again")) {
    if (scratch() == MARK) off();
    outb(0x71, MARK);
    outb(0xcf9, 6);
  }
  if (has(arguments, "off")) off();
  if (has(arguments, "button")) {
    outw(PM1_ENABLE, BUTTON);
    while (!(inw(PM1_STATUS) & BUTTON)) __asm__ volatile("pause");
    off();
  }
  for (;;) __asm__ volatile("hlt");
}

__asm__(".globl _start\n_start: cli\n mov $stack+4096,%esp\n push %ebx\n call guest\n");
