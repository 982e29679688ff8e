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
// This file is compiled without instrumentation and keeps its containers' types private, and what its malloc, memmove
// and memset calls touch is ignored (Quiet), so the scheduler's own accesses are not taken for the kernel's.
#include "emulator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#if !defined(__x86_64__) && !defined(EMU_UCONTEXT)
#define EMU_UCONTEXT
#endif
#ifdef EMU_UCONTEXT
#include <ucontext.h>
#endif

#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
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
static void __tsan_acquire(void*) {}
static void __tsan_release(void*) {}
#endif

namespace emu {
Coordinates* here = nullptr;

namespace {

constexpr size_t STACK = 64 << 10, PAGE = 4096;
constexpr unsigned WARP_SIZE = 32;
constexpr long POLLS_WITHOUT_PROGRESS = 300'000;

struct Settings {
    int order = 0;        // of threads: 0 first in first out, 1 the same from a reversed start, 2 random
    int block_order = 0;  // of block starts: 0 ascending, 1 descending, 2 random
    unsigned seed = 0, resident = 1;
} settings;

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
Machine* machine = nullptr;
std::vector<char*>* stacks = nullptr;  // kept between launches: mapping them anew dominates sanitizer runs
#ifdef EMU_TSAN
// So are ThreadSanitizer's fibers (a megabyte each): a launch is ordered after the one before, so that hides no race.
// Within a launch they are used once.
constexpr size_t KEPT_FIBERS = 1536;
std::vector<void*>* kept_fibers = nullptr;
#endif
std::string last_report;

std::string text(const Loc& l) {
    std::string file = l.file_name();
    return file.substr(file.rfind('/') + 1) + ":" + std::to_string(l.line());
}
std::string text(const Fiber* f) { return "block " + std::to_string(f->block.x) + " thread " + std::to_string(f->index); }

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
[[noreturn]] void fail(const std::string& why) {  // called with a Quiet alive
    machine->report = why;
    Quiet::end();
    jump(machine->current->context, machine->main, true);
    std::abort();
}

void push(Fiber* f) { machine->ready.push_back(f); }

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
    *--top = nullptr;                            // where entry would return to; also its 16-byte alignment
    *--top = reinterpret_cast<void*>(&entry);    // popped by ret
    top -= 6;                                    // the six saved registers
    std::fill(top, top + 6, nullptr);
    c.sp = top;
}
#endif

Memory fresh(size_t bytes, size_t align) {
    Memory m;
    void* p = nullptr;
    if (posix_memalign(&p, align, bytes ? bytes : 1)) std::abort();  // the exact size: rounding up hides overruns
    std::memset(p, 0xCD, bytes);
    m.data.reset(p);
    m.bytes = bytes;
    return m;
}

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

// ------------------------------------------------------------------------------------------ meetings
void meet(Group& g) {  // the last one has come
    Fiber* me = machine->current;
    machine->polls = 0;
    g.turn = !g.turn;
    std::vector<Fiber*> woken;
    woken.swap(g.arrived);
    for (Fiber* f : woken)
        if (f != me) push(f);
    if (settings.order == 2) yield();
}

void compute(Group& g) {
    Fiber* lane[WARP_SIZE] = {};
    for (Fiber* f : g.arrived) lane[f->index % WARP_SIZE] = f;
    Bits all = g.op == AND ? ~Bits(0) : 0;
    for (Fiber* f : g.arrived) {
        switch (g.op) {
            case BALLOT: all |= Bits(f->value != 0) << (f->index % WARP_SIZE); break;
            case ADD: all += f->value; break;
            case OR: all |= f->value; break;
            case AND: all &= f->value; break;
            default: break;
        }
    }
    for (Fiber* f : g.arrived) {
        int me = int(f->index % WARP_SIZE), d = int(f->argument), from = me;
        switch (g.op) {
            case SHFL: from = d; break;
            case SHFL_UP: from = me - d; break;
            case SHFL_DOWN: from = me + d; break;
            case SHFL_XOR: from = me ^ d; break;
            default: break;
        }
        if (g.op == MATCH) {
            f->result = 0;
            for (Fiber* o : g.arrived) f->result |= Bits(o->value == f->value) << (o->index % WARP_SIZE);
        } else if (g.op >= SHFL && g.op <= SHFL_XOR) {
            if (from < 0 || from >= int(WARP_SIZE)) from = me;
            if (!lane[from]) fail("shuffle from lane " + std::to_string(from) + ", not in its mask, at " + text(g.where));
            f->result = lane[from]->value;
        } else {
            f->result = g.op == ADD || g.op == AND ? all & 0xffffffffu : all;
        }
    }
}

unsigned block_meeting(Group& g, unsigned count, bool p, const char* name, Loc loc) {
    Fiber* f = machine->current;
    if (g.arrived.empty()) g.where = loc, g.count = 0;
    g.count += p;
    g.arrived.push_back(f);
    void* sync = &g.sync[g.turn];
    __tsan_release(sync);
    if (g.arrived.size() < count) {
        park(name, loc);
    } else {
        for (Fiber* o : g.arrived) o->result = g.count;
        meet(g);
    }
    __tsan_acquire(sync);
    return unsigned(f->result);
}

bool same(const Loc& a, const Loc& b) {
    return a.line() == b.line() && a.column() == b.column() && !std::strcmp(a.file_name(), b.file_name());
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

unsigned block_barrier(bool p, Loc loc) {
    Quiet quiet;
    Block& b = *machine->current->block_state;
    Group& g = b.barrier;
    if (!g.arrived.empty() && !same(g.where, loc))
        fail("divergent block_sync: " + text(machine->current) + " at " + text(loc) + ", " + text(g.arrived[0]) +
             " at " + text(g.where));
    if (b.alive < machine->threads)
        fail(text(machine->current) + " waits in block_sync at " + text(loc) + " after " +
             std::to_string(machine->threads - b.alive) + " threads of its block returned");
    return block_meeting(g, machine->threads, p, "block_sync", loc);
}

void named_barrier(unsigned id, unsigned count, Loc loc) {
    Quiet quiet;
    if (id < 1 || id > 15 || !count || count % WARP_SIZE || count > machine->threads)
        fail("named_sync of id " + std::to_string(id) + " and " + std::to_string(count) + " threads at " + text(loc));
    block_meeting(machine->current->block_state->named[id], count, false, "named_sync", loc);
}

Bits collective(Op op, unsigned mask, Bits value, unsigned argument, Loc loc) {
    Quiet quiet;
    Fiber* f = machine->current;
    unsigned bit = 1u << (f->index % WARP_SIZE);
    if (!(mask & bit)) fail(text(f) + " is not in the mask of its own collective at " + text(loc));
    auto& groups = f->block_state->warps[f->index / WARP_SIZE];
    Group *g = nullptr, *empty = nullptr;
    for (auto& o : groups) {
        if (o->arrived.empty()) {
            if (!empty && o->mask == mask) empty = o.get();
        } else if (o->mask & mask) {
            g = o.get();
        }
    }
    if (!g) {
        if (!empty) {
            groups.push_back(std::make_unique<Group>());
            empty = groups.back().get();
        }
        g = empty;
        g->op = op, g->mask = mask, g->where = loc;
    } else if (g->mask != mask || g->op != op || !same(g->where, loc)) {
        fail("divergent warp collective: " + text(f) + " at " + text(loc) + ", " + text(g->arrived[0]) + " at " +
             text(g->where));
    }
    f->value = value, f->argument = argument;
    g->arrived.push_back(f);
    void* sync = &g->sync[g->turn];
    if (op == SYNC) __tsan_release(sync);
    if (g->arrived.size() < size_t(__builtin_popcount(mask))) {
        park("a warp collective", loc);
    } else {
        compute(*g);
        meet(*g);
    }
    if (op == SYNC) __tsan_acquire(sync);
    return f->result;
}

void touch(Loc) {
    Quiet quiet;
    machine->polls = 0;
    if (settings.order == 2 && machine->rng() % 8 == 0) yield();
}

void poll(Loc loc) {
    Quiet quiet;
    if (++machine->polls > POLLS_WITHOUT_PROGRESS)
        fail("livelock: " + text(machine->current) + " polls in vain at " + text(loc));
    yield();
}

void check_aligned(const void* p, size_t n, Loc loc) {
    Quiet quiet;
    if (reinterpret_cast<uintptr_t>(p) % n) fail("address not aligned to " + std::to_string(n) + " bytes at " + text(loc));
}

void bulk_init(const void* bar) {
    Quiet quiet;
    machine->current->block_state->bulk[bar] = {};
}

static BulkBarrier& bulk_barrier(const void* bar, Loc loc) {
    auto& all = machine->current->block_state->bulk;
    auto it = all.find(bar);
    if (it == all.end()) fail("bulk copy without bulk_init at " + text(loc));
    return it->second;
}

static void check_bulk(const void* a, const void* b, unsigned bytes, Loc loc) {
    if ((reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) | bytes) % 16)
        fail("bulk copy not in whole 16 bytes at " + text(loc));
}

void bulk_expect(const void* bar, unsigned bytes, Loc loc) {
    Quiet quiet;
    BulkBarrier& b = bulk_barrier(bar, loc);
    b.expected += bytes + 1;  // 1: this arrival
    machine->polls = 0;
    __tsan_release(&b.sync);
}

void bulk_load(void* shared, const void* global, unsigned bytes, const void* bar, Loc loc) {
    Quiet quiet;
    check_bulk(shared, global, bytes, loc);
    BulkBarrier& b = bulk_barrier(bar, loc);
    std::memset(shared, 0xCD, bytes);
    b.loads.push_back({shared, global, bytes});
    b.bytes += bytes;
    machine->polls = 0;
    __tsan_release(&b.sync);
}

void bulk_wait(const void* bar, unsigned phase, Loc loc) {
    Quiet quiet;
    BulkBarrier& b = bulk_barrier(bar, loc);
    while (b.phases % 2 == phase) {
        if (b.expected && b.bytes == b.expected - 1) {
            for (const Copy& c : b.loads) c.run();
            b.loads.clear();
            b.bytes = b.expected = 0;
            ++b.phases;
            machine->polls = 0;
        } else {
            if (++machine->polls > POLLS_WITHOUT_PROGRESS)
                fail("bulk_wait in vain at " + text(loc) + ": " + std::to_string(b.bytes) + " bytes on their way");
            yield();
        }
    }
    __tsan_acquire(&b.sync);
}

void bulk_store(void* global, const void* shared, unsigned bytes, Loc loc) {
    Quiet quiet;
    check_bulk(global, shared, bytes, loc);
    machine->current->stores.push_back({global, shared, bytes});
}

void bulk_store_wait() {
    Quiet quiet;
    for (const Copy& c : machine->current->stores) c.run();
    machine->current->stores.clear();
}

void* dynamic_shared() { return machine->current->block_state->dynamic.data.get(); }

void* static_shared(const void* site, size_t bytes, size_t align) {
    Quiet quiet;
    Memory& m = machine->current->block_state->arrays[site];
    if (!m.data) m = fresh(bytes, align);
    return m.data.get();
}

void* carve(unsigned offset, unsigned bytes, Loc loc) {
    Quiet quiet;
    Memory& m = machine->current->block_state->carved[offset];
    if (offset + bytes > machine->dynamic_bytes)
        fail("carved past the " + std::to_string(machine->dynamic_bytes) + " bytes of dynamic shared memory at " + text(loc));
    if (!m.data) m = fresh(bytes, 128);
    if (m.bytes != bytes) fail("two arrays of different sizes carved from one place at " + text(loc));
    return m.data.get();
}

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
