// The host harness: a CUDA grid acted out by fibers.
//
//     launch --> blocks, `resident` at a time, started in order | reversed | shuffled
//                  |   each thread: a fiber (own stack, hand-written switch)
//                  v
//     ready list: [ t7 t3 t12 ... ]   next = first | first of a reversed start | random
//                  ^        |
//         wake all |        v  runs until it must wait
//     barrier / warp collective: parked until the last thread of the group arrives
//     polling load: back to the end of the list
//
// Nobody ready and threads left: a deadlock, reported with where each of them waits. Only polling loads left for
// very long: a livelock. A report abandons the fibers and throws in the launching context, so a test sees an
// exception, not a dead process.
//
// Memory: each shared array is a heap block of its block and declaration, filled with 0xCD. So several blocks
// can be resident, AddressSanitizer sees red zones around each array, and unwritten reads give odd values.
//
// ThreadSanitizer knows fibers: with each fiber a thread to it, and barriers and warp_sync as its only edges
// (not shuffles and ballots, which order no memory on a GPU), it is a full race checker under any one schedule.
// The emulator is compiled without instrumentation, no other file uses its containers' types, and what its malloc,
// memmove and memset calls touch is ignored (Quiet), so the scheduler's own accesses are not taken for the kernel's.
#include "emulator_machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emu {
Coordinates* here = nullptr;
Settings settings;
Machine* machine = nullptr;

namespace {

constexpr size_t STACK = 64 << 10, PAGE = 4096;
std::vector<char*>* stacks = nullptr;  // kept between launches: mapping them anew dominates sanitizer runs
#ifdef EMU_TSAN
// So are ThreadSanitizer's fibers (a megabyte each): a launch is ordered after the one before, so that hides no race.
// Within a launch they are used once.
constexpr size_t KEPT_FIBERS = 1536;
std::vector<void*>* kept_fibers = nullptr;
#endif
std::string last_report;

// ------------------------------------------------------------------------------------------ switching
#ifndef EMU_UCONTEXT
extern "C" __attribute__((visibility("hidden"))) void emu_switch(void** save, void* load);
asm(R"(
.text
.type emu_switch,@function
emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emu_switch,.-emu_switch
)");
#endif

void arrive([[maybe_unused]] Context& me) {
#ifdef EMU_ASAN
  const void* bottom;
  size_t size;
  __sanitizer_finish_switch_fiber(me.fake, &bottom, &size);
  Context& main = machine->main;
  if (!main.bottom && &me != &main) main.bottom = bottom, main.size = size;  // the first switch comes from main
#endif
}

void jump(Context& from, Context& to, [[maybe_unused]] bool last = false) {
#ifdef EMU_ASAN
  __sanitizer_start_switch_fiber(last ? nullptr : &from.fake, to.bottom, to.size);
#endif
#ifdef EMU_TSAN
  __tsan_switch_to_fiber(to.tsan, 1);
#endif
#ifdef EMU_UCONTEXT
  swapcontext(&from.uc, &to.uc);
#else
  emu_switch(&from.sp, to.sp);
#endif
  arrive(from);
}

char* take_stack() {
  if (!stacks) stacks = new std::vector<char*>;
  if (!stacks->empty()) {
    char* s = stacks->back();
    stacks->pop_back();
    return s;
  }
  void* p = mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) std::perror("emulator: no memory for a stack"), std::abort();
  mprotect(p, PAGE, PROT_NONE);
  return static_cast<char*>(p) + PAGE;
}

void drop_stack(char* s) {
#ifdef EMU_ASAN
  __asan_unpoison_memory_region(s, STACK);
#endif
  munmap(s - PAGE, STACK + PAGE);
}

// ------------------------------------------------------------------------------------------ scheduling
}  // namespace

void fail(const std::string& why) {  // called with a Quiet alive
  machine->report = why;
  Quiet::end();
  jump(machine->current->context, machine->main, true);
  std::abort();
}

void push(Fiber* f) { machine->ready.push_back(f); }

namespace {
Fiber* pop() {
  Machine& m = *machine;
  if (m.head == m.ready.size()) return nullptr;
  if (settings.order == 2) std::swap(m.ready[m.head], m.ready[m.head + m.rng() % (m.ready.size() - m.head)]);
  Fiber* f = m.ready[m.head++];
  if (m.head > 4096 && m.head * 2 > m.ready.size()) {
    m.ready.erase(m.ready.begin(), m.ready.begin() + long(m.head));
    m.head = 0;
  }
  return f;
}

std::string deadlock() {
  std::string r = "deadlock: nobody can run";
  std::map<std::string, std::pair<unsigned, std::string>> at;
  for (auto& b : machine->blocks)
    for (Fiber* f : b->threads)
      if (f->waits) {
        auto& e = at[std::string(f->waits) + " at " + text(f->where)];
        if (!e.first++) e.second = text(f);
      }
  for (auto& [key, e] : at)
    r += "\n  " + std::to_string(e.first) + " threads wait in " + key + " (first: " + e.second + ")";
  return r;
}

void resume_next(bool last) {
  Fiber* from = machine->current;
  Fiber* to = pop();
  if (!to) {
    bool done = last && std::all_of(machine->blocks.begin(), machine->blocks.end(), [](auto& b) { return !b->alive; });
    if (!done) machine->report = deadlock();
    Quiet::end();
    jump(from->context, machine->main, true);
    std::abort();
  }
  if (to == from) return;
  machine->current = to;
  here = to;
  if (last) Quiet::end();
  jump(from->context, to->context, last);
}

}  // namespace

void park(const char* what, Loc loc) {
  Fiber* f = machine->current;
  f->waits = what, f->where = loc;
  resume_next(false);
  f->waits = nullptr;
}

void yield() {
  push(machine->current);
  resume_next(false);
}

namespace {
void start_block();

void reclaim() {
  for (Fiber* f : machine->ended) {
    stacks->push_back(f->stack);
    f->stack = nullptr;
#ifdef EMU_TSAN
    if (machine->used_fibers.size() < KEPT_FIBERS)
      machine->used_fibers.push_back(f->context.tsan);
    else
      __tsan_destroy_fiber(f->context.tsan);
#endif
  }
  machine->ended.clear();
}

void thread_exit() {
  Quiet quiet;
  Machine& m = *machine;
  Fiber* f = m.current;
  Block& b = *f->block_state;
  if (!b.barrier.arrived.empty())
    fail(text(f) + " returned while " + std::to_string(b.barrier.arrived.size()) +
         " threads of its block wait in block_sync at " + text(b.barrier.where));
  if (!f->stores.empty()) fail(text(f) + " returned before its bulk stores were waited for");
  __tsan_release(&b.done);
  __tsan_release(f->stack);  // its next owner, in a block that starts later in this launch, acquires it
  m.polls = 0;
  reclaim();
  m.ended.push_back(f);
  if (--b.alive == 0) {
    __tsan_acquire(&b.done);
    __tsan_release(&m.end_sync);
    b.arrays.clear(), b.carved.clear(), b.dynamic.data.reset();
    b.threads.clear();
    if (!m.waiting_blocks.empty()) start_block();
  }
  resume_next(true);
  std::abort();
}

void entry() {
  arrive(machine->current->context);
  __tsan_acquire(&machine->launch_sync);
  __tsan_acquire(machine->current->stack);
  machine->body(machine->closure);
  thread_exit();
}

#ifdef EMU_UCONTEXT
void prepare(Context& c, char* stack) {
  getcontext(&c.uc);
  c.uc.uc_stack = {stack, 0, STACK};
  c.uc.uc_link = nullptr;
  makecontext(&c.uc, entry, 0);
}
#else
void prepare(Context& c, char* stack) {
  auto top = reinterpret_cast<void**>(stack + STACK);
  *--top = nullptr;                          // where entry would return to; also its 16-byte alignment
  *--top = reinterpret_cast<void*>(&entry);  // popped by ret
  top -= 6;                                  // the six saved registers
  std::fill(top, top + 6, nullptr);
  c.sp = top;
}
#endif

void start_block() {
  Machine& m = *machine;
  auto b = std::make_unique<Block>();
  unsigned id = m.waiting_blocks.back();
  m.waiting_blocks.pop_back();
  b->dynamic = fresh(m.dynamic_bytes, 128);
  b->alive = m.threads;
  b->warps.resize(m.threads / WARP_SIZE);
  for (unsigned t = 0; t < m.threads; ++t) {
    m.fibers.push_back(std::make_unique<Fiber>());
    Fiber* f = m.fibers.back().get();
    f->stack = take_stack();
    f->thread.x = f->index = t;
    f->block.x = id;
    f->block_dim.x = m.threads;
    f->grid_dim.x = m.grid;
    f->block_state = b.get();
    prepare(f->context, f->stack);
#ifdef EMU_ASAN
    __asan_unpoison_memory_region(f->stack, STACK);
    f->context.bottom = f->stack, f->context.size = STACK;
#endif
#ifdef EMU_TSAN
    if (kept_fibers->empty()) kept_fibers->push_back(__tsan_create_fiber(0));
    f->context.tsan = kept_fibers->back();
    kept_fibers->pop_back();
#endif
    b->threads.push_back(f);
  }
  for (unsigned t = 0; t < m.threads; ++t) push(b->threads[settings.order == 1 ? m.threads - 1 - t : t]);
  m.blocks.push_back(std::move(b));
}

void release_all(bool report) {
  Machine& m = *machine;
  if (!report) {
    reclaim();
#ifdef EMU_TSAN
    kept_fibers->insert(kept_fibers->end(), m.used_fibers.begin(), m.used_fibers.end());
#endif
    return;
  }
  for (auto& f : m.fibers)  // their ThreadSanitizer fibers, parked in mid-call, must not be destroyed
    if (f->stack) drop_stack(f->stack);
  for (char* s : *stacks) drop_stack(s);
  stacks->clear();
}
}  // namespace

int failed(const std::string& report) {
  last_report = report;
  return 1;
}

void run(unsigned grid, unsigned threads, size_t dynamic_bytes, void (*body)(void*), void* closure) {
  if (!threads || threads % WARP_SIZE || threads > 1024)
    throw "a block of " + std::to_string(threads) + " threads: must be whole warps, at most 1024";
  Quiet quiet;
  Machine m;
  machine = &m;
  m.grid = grid, m.threads = threads, m.dynamic_bytes = dynamic_bytes, m.body = body, m.closure = closure;
  m.rng.seed(settings.seed + 1);
#ifdef EMU_TSAN
  if (!kept_fibers) kept_fibers = new std::vector<void*>;
#endif
  for (unsigned b = 0; b < grid; ++b) m.waiting_blocks.push_back(grid - 1 - b);
  if (settings.block_order == 1) std::reverse(m.waiting_blocks.begin(), m.waiting_blocks.end());
  if (settings.block_order == 2) std::shuffle(m.waiting_blocks.begin(), m.waiting_blocks.end(), m.rng);
  for (unsigned r = 0; r < settings.resident && !m.waiting_blocks.empty(); ++r) start_block();
  if (Fiber* first = pop()) {
#ifdef EMU_TSAN
    m.main.tsan = __tsan_get_current_fiber();
#endif
    __tsan_release(&m.launch_sync);
    m.current = first, here = first;
    jump(m.main, first->context);
    __tsan_acquire(&m.end_sync);
  }
  std::string report = m.report;
  release_all(!report.empty());
  machine = nullptr, here = nullptr;
  if (!report.empty()) throw report;
}
}  // namespace emu

extern "C" {
/// order: 0 in order, 1 reversed, 2 random (threads); the same for the starts of blocks; blocks resident at a time.
EMU_EXPORT void emu_configure(int order, int block_order, unsigned seed, unsigned resident) {
  emu::settings = {order, block_order, seed, resident};
}
EMU_EXPORT const char* emu_report() { return emu::last_report.c_str(); }
}
