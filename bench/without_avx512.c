// Hides AVX-512 and AMX from a process that has loaded this library first: what asks the processor gets an answer of one
// that ends with AVX2. Linux lets the instruction `cpuid` fault (arch_prctl(2), ARCH_SET_CPUID), also in later threads.
// The C library has asked before, so copies of memory remain those of this processor.

#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static long allow(int allowed) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, allowed); }

static void answer(int number, siginfo_t* info, void* context) {
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  const unsigned char* code = (const unsigned char*)registers[REG_RIP];
  if (code[0] != 0x0f || code[1] != 0xa2) {  // another fault than that of `cpuid`
    signal(SIGSEGV, SIG_DFL);
    return;
  }
  unsigned leaf = registers[REG_RAX], part = registers[REG_RCX], a, b, c, d;
  allow(1);
  __cpuid_count(leaf, part, a, b, c, d);
  allow(0);
  if (leaf == 7 && part == 0) {
    b &= ~0xdc230000u;  // AVX-512: F, DQ, IFMA, PF, ER, CD, BW, VL
    c &= ~0x00005842u;  // VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ
    d &= ~0x03c0010cu;  // 4VNNIW, 4FMAPS, VP2INTERSECT, FP16; AMX
  } else if (leaf == 7) {
    a = b = c = d = 0;  // what came later
  }
  registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
  registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void begin(void) {
  struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGSEGV, &action, NULL);
  if (allow(0)) {
    perror("this processor or system can't hide instructions");
    _exit(1);
  }
}
