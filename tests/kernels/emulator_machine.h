// What emulator.cpp (fibers and their schedule) and emulator_meetings.cpp (what threads wait for and share) have in
// common: the state of one launch.
#pragma once

#include "emulator.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#if !defined(__x86_64__) && !defined(EMU_UCONTEXT)
#define EMU_UCONTEXT
#endif
#ifdef EMU_UCONTEXT
#include <ucontext.h>
#endif

#ifdef EMU_TSAN
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* object);
void __tsan_release(void* object);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#else
inline void __tsan_acquire(void*) {}
inline void __tsan_release(void*) {}
#endif

namespace emu {

constexpr unsigned WARP_SIZE = 32;
constexpr long POLLS_WITHOUT_PROGRESS = 300'000;

struct Settings {
  int order = 0;        // of threads: 0 first in first out, 1 the same from a reversed start, 2 random
  int block_order = 0;  // of block starts: 0 ascending, 1 descending, 2 random
  unsigned seed = 0, resident = 1;
};
extern Settings settings;

struct Block;

struct Context {
  void* sp = nullptr;
#ifdef EMU_UCONTEXT
  ucontext_t uc;
#endif
#ifdef EMU_ASAN
  const void* bottom = nullptr;
  size_t size = 0;
  void* fake = nullptr;
#endif
#ifdef EMU_TSAN
  void* tsan = nullptr;
#endif
};

struct Copy {
  void* to;
  const void* from;
  unsigned bytes;
  void run() const { std::memcpy(to, from, bytes); }
};

struct Fiber : Coordinates {
  Context context;
  char* stack = nullptr;
  Block* block_state = nullptr;
  unsigned index = 0;
  Bits value = 0, result = 0;
  unsigned argument = 0;
  const char* waits = nullptr;  // for what, while parked
  Loc where;
  std::vector<Copy> stores;
};

struct BulkBarrier {
  std::vector<Copy> loads;
  unsigned long bytes = 0, expected = 0, phases = 0;
  char sync = 0;
};

struct Group {  // threads that meet at one barrier or collective
  std::vector<Fiber*> arrived;
  Op op = SYNC;
  unsigned mask = 0, count = 0;
  Loc where;
  char sync[2];  // two, by turns: a late leaver of one meeting must not acquire the next one's releases
  bool turn = false;
};

struct Free {
  void operator()(void* p) const { std::free(p); }
};
struct Memory {
  std::unique_ptr<void, Free> data;
  size_t bytes = 0;
};

struct Block {
  std::vector<Fiber*> threads;
  unsigned alive = 0;
  Group barrier, named[16];
  std::vector<std::vector<std::unique_ptr<Group>>> warps;
  std::map<const void*, Memory> arrays;
  std::map<unsigned, Memory> carved;
  std::map<const void*, BulkBarrier> bulk;
  Memory dynamic;
  char done = 0;
};

struct Machine {
  Context main;
  std::vector<Fiber*> ready;  // used as a ring from `head`, but for random order
  size_t head = 0;
  std::vector<unsigned> waiting_blocks;  // next to start at the back
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> ended;  // their stacks are free once another fiber runs
  std::minstd_rand rng;
  unsigned grid = 0, threads = 0;
  size_t dynamic_bytes = 0;
  void (*body)(void*) = nullptr;
  void* closure = nullptr;
  long polls = 0;
  Fiber* current = nullptr;
  char launch_sync = 0, end_sync = 0;
#ifdef EMU_TSAN
  std::vector<void*> used_fibers;
#endif
  std::string report;
};
extern Machine* machine;

inline std::string text(const Loc& l) {
  std::string file = l.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(l.line());
}
inline std::string text(const Fiber* f) {
  return "block " + std::to_string(f->block.x) + " thread " + std::to_string(f->index);
}

struct Quiet {  // while it lives, ThreadSanitizer ignores what this fiber reads and writes
#ifdef EMU_TSAN
  Quiet() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Quiet() { end(); }
  static void end() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  Quiet() {}
  static void end() {}
#endif
};

[[noreturn]] void fail(const std::string& why);  // with a Quiet alive: abandons the launch
void push(Fiber* f);                             // ready to run
void park(const char* what, Loc loc);            // until somebody pushes the current thread
void yield();
Memory fresh(size_t bytes, size_t align);

}  // namespace emu
