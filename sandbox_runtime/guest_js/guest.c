/* The exports of wit/sandbox.wit over QuickJS-ng. All that needs no C is in library.js. */

#include <ctype.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "quickjs.h"

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

typedef struct {
  char *at;
  size_t size;
} text;

typedef struct {
  uint64_t seconds;
  uint32_t nanoseconds;
} datetime;

IMPORT("portal:sandbox/host@0.1.0", "exchange") void host_exchange(const char *, size_t, int64_t, text *);
IMPORT("portal:sandbox/host@0.1.0", "print") void host_print(const char *, size_t);
IMPORT("portal:sandbox/host@0.1.0", "emit") void host_emit(const char *, size_t);
IMPORT("wasi:clocks/monotonic-clock@0.2.9", "now") uint64_t host_monotonic(void);
IMPORT("wasi:clocks/wall-clock@0.2.9", "now") void host_wall(datetime *);
IMPORT("wasi:random/random@0.2.9", "get-random-u64") uint64_t host_random(void);

/* The stack in memory that scripts may use: some 800 calls. From 700 KiB on some recursions exhaust the engine's own
   stack of 1 MiB first, which is not catchable. stack.h makes the two alike. */
#define STACK_BYTES (600 * 1024)
/* So much may a run allocate before the first search for cycles. */
#define GARBAGE_BYTES (8 << 20)
/* Kept free for the report of a run that used up its memory. */
#define RESERVE_BYTES (256 * 1024)

static JSRuntime *runtime;
static JSContext *context;
static JSContext *analysis_context; /* of its own, so that no script can change what analyses the next one */
static JSValue analysis;
static JSValue library; /* what library.js evaluates to */
static JSValue code;    /* the compiled script */
static text answer;
static void *reserve;
static int is_image = 1; /* while the image is made there is no host */
static int failed_allocations;
static uint64_t random_state[2];

/* Memory: QuickJS reports a failed allocation as an error of the script, which any script can imitate. So count. */

static void *counted(void *block) {
  failed_allocations += !block;
  return block;
}
static void *allocate(void *_, size_t size) { return counted(malloc(size)); }
static void *allocate_zeroed(void *_, size_t count, size_t size) { return counted(calloc(count, size)); }
static void release(void *_, void *block) {
  if (is_image && block) memset(block, 0, malloc_usable_size(block)); /* the image has no room for what is gone */
  free(block);
}
static void *reallocate(void *_, void *block, size_t size) {
  if (!is_image || !block) return counted(realloc(block, size));
  void *moved = malloc(size);
  memcpy(moved, block, size < malloc_usable_size(block) ? size : malloc_usable_size(block));
  release(NULL, block);
  return moved;
}

EXPORT("cabi_realloc") void *cabi_realloc(void *old, size_t old_size, size_t align, size_t size) {
  void *block = size ? realloc(old, size) : (void *)align;
  if (!block) __builtin_trap();
  return block;
}

/* Time: that of the run. */

int clock_gettime(clockid_t clock, struct timespec *time) {
  datetime now = {0, 0};
  if (!is_image && clock == CLOCK_MONOTONIC) {
    uint64_t ns = host_monotonic();
    now = (datetime){ns / 1000000000, ns % 1000000000};
  } else if (!is_image) {
    host_wall(&now);
  }
  *time = (struct timespec){now.seconds, now.nanoseconds};
  return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict _) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *time = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

struct tm *localtime_r(const time_t *restrict time, struct tm *restrict fields) { return gmtime_r(time, fields); }

/* Functions for library.js. */

/* Whether JSON may have an integer that a float cannot represent: 16 digits in a row that no point precedes. */
static bool has_long_integer(const char *json, size_t size) {
  int digits = 0;
  for (size_t i = 0; i < size; i++) {
    if (!isdigit((unsigned char)json[i])) {
      digits = json[i] == '.' ? -(1 << 30) : 0;
    } else if (++digits >= 16) {
      return true;
    }
  }
  return false;
}

static JSValue js_has_long_integer(JSContext *js, JSValueConst this, int count, JSValueConst *given) {
  size_t size;
  const char *json = JS_ToCStringLen(js, &size, given[0]);
  if (!json) return JS_EXCEPTION;
  bool found = has_long_integer(json, size);
  JS_FreeCString(js, json);
  return JS_NewBool(js, found);
}

/* Ends answers with the zero that the parser needs. Python writes NaN and Infinity, which are not JSON: they become null and
   1e999, which is read as infinity. */
static bool make_parsable(text *json) {
  size_t nans = 0, size = json->size;
  for (char *at = json->at; (at = memmem(at, json->at + size - at, "NaN", 3)); at += 3) nans++; /* null is longer */
  char *to = counted(realloc(json->at, size + nans + 1)), *from = to + nans, *end = from + size;
  if (!to) return false;
  json->at = to;
  memmove(from, to, size);
  if (!nans && !memmem(to, size, "Infinity", 8)) to = from = end;
  for (bool is_text = false; from < end;) {
    if (!is_text && (*from == 'N' || *from == 'I')) {
      const char *number = *from == 'N' ? "null" : "1e999";
      from += *from == 'N' ? 3 : 8;
      while (*number) *to++ = *number++;
    } else {
      is_text ^= *from == '"';
      if (*from == '\\') *to++ = *from++;
      *to++ = *from++;
    }
  }
  *to = 0;
  json->size = to - json->at;
  return true;
}

/* Returns the parsed responses, undefined if there are none, or their text if it has long integers. */
static JSValue js_exchange(JSContext *js, JSValueConst this, int count, JSValueConst *given) {
  text received = {0};
  size_t size;
  double timeout_ms;
  const char *outbox = JS_ToCStringLen(js, &size, given[0]);
  if (!outbox || JS_ToFloat64(js, &timeout_ms, given[1])) return JS_EXCEPTION;
  host_exchange(outbox, size, (int64_t)timeout_ms, &received);
  JS_FreeCString(js, outbox);
  if (!received.size) return JS_UNDEFINED;
  if (!make_parsable(&received)) return free(received.at), JS_ThrowOutOfMemory(js);
  JSValue result = has_long_integer(received.at, received.size) ? JS_NewStringLen(js, received.at, received.size)
                                                                : JS_ParseJSON(js, received.at, received.size, "answers");
  free(received.at);
  return result;
}

enum { PRINT, EMIT, BYTES, HAS_SURROGATES };

/* Sends a text to the host, or returns its size in UTF-8, or whether it may have escapes of lone surrogates. */
static JSValue js_text(JSContext *js, JSValueConst this, int count, JSValueConst *given, int what) {
  size_t size;
  const char *sent = JS_ToCStringLen(js, &size, given[0]);
  if (!sent) return JS_EXCEPTION;
  if (what == PRINT) host_print(sent, size);
  if (what == EMIT) host_emit(sent, size);
  bool found = what == HAS_SURROGATES && strstr(sent, "\\ud");
  JS_FreeCString(js, sent);
  return what == BYTES ? JS_NewInt64(js, size) : JS_NewBool(js, found);
}

static JSValue js_encode(JSContext *js, JSValueConst this, int count, JSValueConst *given) {
  size_t size;
  const char *utf8 = JS_ToCStringLen(js, &size, given[0]);
  if (!utf8) return JS_EXCEPTION;
  JSValue bytes = JS_NewArrayBufferCopy(js, (const uint8_t *)utf8, size);
  JS_FreeCString(js, utf8);
  return bytes;
}

static JSValue js_decode(JSContext *js, JSValueConst this, int count, JSValueConst *given) {
  size_t size;
  uint8_t *bytes = JS_GetArrayBuffer(js, &size, given[0]);
  return bytes ? JS_NewStringLen(js, (const char *)bytes, size) : JS_EXCEPTION;
}

/* Math.random: xorshift128+, seeded from the run's randomness at its first use. */
static JSValue js_random(JSContext *js, JSValueConst this, int count, JSValueConst *given) {
  if (!random_state[0]) random_state[0] = host_random() | 1, random_state[1] = host_random();
  uint64_t a = random_state[0], b = random_state[1];
  random_state[0] = b;
  a ^= a << 23;
  random_state[1] = a ^ b ^ (a >> 17) ^ (b >> 26);
  return JS_NewFloat64(js, ((random_state[1] + b) >> 11) * 0x1p-53);
}

static JSValue js_random64(JSContext *js, JSValueConst this, int count, JSValueConst *given) {
  return JS_NewBigUint64(js, host_random());
}

static JSValue js_monotonic(JSContext *js, JSValueConst this, int count, JSValueConst *given) {
  return JS_NewFloat64(js, host_monotonic() / 1e6);
}

static JSValue js_compile(JSContext *js, JSValueConst this, int count, JSValueConst *given) {
  size_t size;
  const char *source = JS_ToCStringLen(js, &size, given[0]);
  if (!source) return JS_EXCEPTION;
  JS_FreeValue(js, code);
  const int flags = JS_EVAL_TYPE_GLOBAL | JS_EVAL_FLAG_ASYNC | JS_EVAL_FLAG_COMPILE_ONLY;
  code = JS_Eval(js, source, size, "script.js", flags);
  JS_FreeCString(js, source);
  if (!JS_IsException(code)) return JS_UNDEFINED;
  code = JS_UNDEFINED;
  return JS_EXCEPTION;
}

/* How often memory was missing in this run. Frees the reserve, so that the report has room. */
static JSValue js_failed_allocations(JSContext *js, JSValueConst this, int count, JSValueConst *given) {
  if (failed_allocations) free(reserve), reserve = NULL;
  return JS_NewInt32(js, failed_allocations);
}

static JSValue call(const char *name, int count, JSValueConst *given) {
  JSValue function = JS_GetPropertyStr(context, library, name);
  JSValue result = JS_Call(context, function, JS_UNDEFINED, count, given);
  JS_FreeValue(context, function);
  return result;
}

/* Tells the library of an error that no code has handled yet, or has now. */
static void track_rejection(JSContext *js, JSValueConst promise, JSValueConst reason, bool is_handled, void *_) {
  JSValue told = call(is_handled ? "handled" : "rejected", 2, (JSValueConst[]){promise, reason});
  if (JS_IsException(told)) told = JS_GetException(js);
  JS_FreeValue(js, told);
}

static const JSCFunctionListEntry functions[] = {
    JS_CFUNC_DEF("exchange", 2, js_exchange),
    JS_CFUNC_DEF("hasLongInteger", 1, js_has_long_integer),
    JS_CFUNC_MAGIC_DEF("print", 1, js_text, PRINT),
    JS_CFUNC_MAGIC_DEF("emit", 1, js_text, EMIT),
    JS_CFUNC_MAGIC_DEF("utf8Bytes", 1, js_text, BYTES),
    JS_CFUNC_MAGIC_DEF("hasSurrogates", 1, js_text, HAS_SURROGATES),
    JS_CFUNC_DEF("encode", 1, js_encode),
    JS_CFUNC_DEF("decode", 1, js_decode),
    JS_CFUNC_DEF("random", 0, js_random),
    JS_CFUNC_DEF("random64", 0, js_random64),
    JS_CFUNC_DEF("monotonic", 0, js_monotonic),
    JS_CFUNC_DEF("compile", 1, js_compile),
    JS_CFUNC_DEF("failedAllocations", 0, js_failed_allocations),
};

/* While the image is made, an error of our own JavaScript goes to `print`, which ends the build. */
static JSValue checked(JSValue value) {
  if (!JS_IsException(value)) return value;
  JSValue error = JS_GetException(context), stack = JS_GetPropertyStr(context, error, "stack");
  char told[2000];
  host_print(told, snprintf(told, sizeof told, "%s\n%s", JS_ToCString(context, error), JS_ToCString(context, stack)));
  abort();
}

/* Exports for build_js.py. */

EXPORT("image_begin") void image_begin(void) {
  /* Without the sizes of blocks: QuickJS's sum of them drifts, and once it is below zero QuickJS aborts. */
  const JSMallocFunctions memory = {allocate_zeroed, allocate, release, reallocate, NULL};
  runtime = JS_NewRuntime2(&memory, NULL);
  JS_SetMaxStackSize(runtime, STACK_BYTES);
  JS_SetHostPromiseRejectionTracker(runtime, track_rejection, NULL);
  analysis_context = JS_NewContext(runtime);
  context = JS_NewContext(runtime);
  JS_AddPerformance(context);
  analysis = library = code = JS_UNDEFINED;
}

/* Evaluates our JavaScript without its source text and the places in it. Each function would keep its own part of both. */
static JSValue evaluate(JSContext *js, const char *name, const char *source, size_t size) {
  size_t code_size;
  JSValue compiled = checked(JS_Eval(js, source, size, name, JS_EVAL_TYPE_GLOBAL | JS_EVAL_FLAG_COMPILE_ONLY));
  uint8_t *bytes = JS_WriteObject(js, &code_size, compiled, JS_WRITE_OBJ_BYTECODE | JS_WRITE_OBJ_STRIP_SOURCE | JS_WRITE_OBJ_STRIP_DEBUG);
  JS_FreeValue(js, compiled);
  JSValue read = checked(JS_ReadObject(js, bytes, code_size, JS_READ_OBJ_BYTECODE));
  js_free(js, bytes);
  return checked(JS_EvalFunction(js, read));
}

EXPORT("image_analysis") void image_analysis(char *source, size_t size) {
  analysis = evaluate(analysis_context, "analysis.js", source, size);
  release(NULL, source);
}

/* The source is a function of the host's functions and of the analysis. */
EXPORT("image_library") void image_library(char *source, size_t size) {
  JSValue make = evaluate(context, "library.js", source, size), host = JS_NewObject(context);
  release(NULL, source);
  JS_SetPropertyFunctionList(context, host, functions, sizeof functions / sizeof *functions);
  library = checked(JS_Call(context, make, JS_UNDEFINED, 2, (JSValueConst[]){host, analysis}));
  JS_FreeValue(context, make);
  JS_FreeValue(context, host);
}

/* Overwrites what was freed while the image was made, above all source text: zeros take no space in the component. */
static void clear_free_memory(void) {
  size_t pages = __builtin_wasm_memory_size(0);
  void **kept = NULL, **block;
  for (size_t size = 1 << 20; size >= 16;) {
    if ((block = malloc(size)) && __builtin_wasm_memory_size(0) == pages) {
      memset(block, 0, size);
      *block = kept;
      kept = block;
    } else {
      free(block);
      pages = __builtin_wasm_memory_size(0);
      size /= 2;
    }
  }
  while ((block = kept)) {
    kept = *block;
    free(block);
  }
}

EXPORT("image_end") void image_end(void) {
  JS_RunGC(runtime);
  clear_free_memory();
  JSMemoryUsage usage;
  JS_ComputeMemoryUsage(runtime, &usage);
  JS_SetGCThreshold(runtime, usage.malloc_size + GARBAGE_BYTES); /* a collection writes to every page of the image */
  reserve = malloc(RESERVE_BYTES);
  memset(reserve, 1, RESERVE_BYTES);
  is_image = failed_allocations = 0;
}

/* Exports of wit/sandbox.wit. */

static text *give(const char *from, size_t size) {
  answer = (text){malloc(size + 1), size};
  if (!answer.at) __builtin_trap();
  memcpy(answer.at, from, size);
  return &answer;
}

/* Calls a function of the library, whose text is the answer. */
static text *answer_of(const char *name, int count, JSValue *given) {
  JSValue result = call(name, count, given);
  for (int i = 0; i < count; i++) JS_FreeValue(context, given[i]);
  size_t size;
  const char *from = JS_IsException(result) ? NULL : JS_ToCStringLen(context, &size, result);
  if (!from) { /* Not even the report could be made. */
    static const char memory[] = "{\"error\":{\"code\":\"memory_limit\"}}\nnull", other[] = "{\"error\":{}}\nnull";
    JS_FreeValue(context, JS_GetException(context));
    return failed_allocations ? give(memory, sizeof memory - 1) : give(other, sizeof other - 1);
  }
  text *given_back = give(from, size);
  JS_FreeCString(context, from);
  JS_FreeValue(context, result);
  return given_back;
}

static JSValue string_of(char *from, size_t size) {
  JSValue result = JS_NewStringLen(context, from, size);
  if (size) free(from);
  return result;
}

EXPORT("wake") void wake(void) {}

EXPORT("prepare") text *prepare(char *script, size_t size, char *namespaces, size_t namespaces_size) {
  JSValue given[] = {string_of(script, size), string_of(namespaces, namespaces_size)};
  failed_allocations = 0;
  return answer_of("prepare", 2, given);
}

static void run_jobs(void) {
  JSContext *of;
  for (int done; (done = JS_ExecutePendingJob(runtime, &of)) != 0;) {
    if (done > 0) continue;
    JSValue error = JS_GetException(of); /* of a callback of queueMicrotask */
    track_rejection(context, JS_UNDEFINED, error, false, NULL);
    JS_FreeValue(context, error);
  }
}

EXPORT("execute") text *execute(char *settings, size_t size) {
  JSValue given[] = {string_of(settings, size)};
  failed_allocations = 0;
  JSValue promise = call("begin", 1, given);
  JS_FreeValue(context, given[0]);
  if (!JS_IsException(promise)) {
    promise = JS_EvalFunction(context, code);
    code = JS_UNDEFINED;
  }
  JSPromiseStateEnum state = JS_PROMISE_REJECTED;
  JSValue result = JS_UNDEFINED;
  while (JS_IsObject(promise)) {
    run_jobs();
    if ((state = JS_PromiseState(context, promise)) != JS_PROMISE_PENDING) {
      result = JS_PromiseResult(context, promise);
      break;
    }
    JSValue waited = call("wait", 0, NULL);
    if (JS_IsException(waited)) {
      state = JS_PROMISE_REJECTED;
      result = JS_GetException(context);
      break;
    }
    JS_FreeValue(context, waited);
  }
  if (!JS_IsObject(promise)) result = JS_GetException(context);
  JS_FreeValue(context, promise);
  JSValue ending[] = {JS_NewBool(context, state == JS_PROMISE_FULFILLED), result};
  return answer_of("end", 2, ending);
}

EXPORT("cabi_post_prepare") void post_prepare(text *given) { free(given->at); }
EXPORT("cabi_post_execute") void post_execute(text *given) { free(given->at); }
