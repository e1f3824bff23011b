/* Included before every file of QuickJS. It limits recursion by the stack in wasm's memory, but functions without
   arrays have most of their frame on the engine's own stack, whose end is not catchable. So each function that checks
   the limit gets a larger frame in memory. */

static inline __attribute__((always_inline)) void *padded_stack_pointer(void) {
  volatile char frame[512];
  frame[0] = 0;
  return (void *)frame;
}

#define __builtin_frame_address(level) padded_stack_pointer()
