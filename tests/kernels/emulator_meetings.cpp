// What threads wait for and what they share: barriers, warp collectives, polls, bulk copies, shared memory.
#include "emulator_machine.h"

namespace emu {
namespace {
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
      case BALLOT:
        all |= Bits(f->value != 0) << (f->index % WARP_SIZE);
        break;
      case ADD:
        all += f->value;
        break;
      case OR:
        all |= f->value;
        break;
      case AND:
        all &= f->value;
        break;
      default:
        break;
    }
  }
  for (Fiber* f : g.arrived) {
    int me = int(f->index % WARP_SIZE), d = int(f->argument), from = me;
    switch (g.op) {
      case SHFL:
        from = d;
        break;
      case SHFL_UP:
        from = me - d;
        break;
      case SHFL_DOWN:
        from = me + d;
        break;
      case SHFL_XOR:
        from = me ^ d;
        break;
      default:
        break;
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

}  // namespace

unsigned block_barrier(bool p, Loc loc) {
  Quiet quiet;
  Block& b = *machine->current->block_state;
  Group& g = b.barrier;
  if (!g.arrived.empty() && !same(g.where, loc))
    fail("divergent block_sync: " + text(machine->current) + " at " + text(loc) + ", " + text(g.arrived[0]) + " at " +
         text(g.where));
  if (b.alive < machine->threads)
    fail(text(machine->current) + " waits in block_sync at " + text(loc) + " after " +
         std::to_string(machine->threads - b.alive) + " threads of its block returned");
  return block_meeting(g, machine->threads, p, "block_sync", loc);
}

void named_barrier(unsigned id, unsigned count, Loc loc) {
  Quiet quiet;
  if (id < 1 || id > 15 || !count || count % WARP_SIZE || count > machine->threads)
    fail("named_sync of id " + std::to_string(id) + " and " + std::to_string(count) + " threads at " + text(loc));
  Group& g = machine->current->block_state->named[id];
  if (g.arrived.size() + 1 == count) {  // a GPU counts a warp as a whole when its first lane comes
    unsigned of_warp[32] = {};
    ++of_warp[machine->current->index / WARP_SIZE];
    for (Fiber* f : g.arrived) ++of_warp[f->index / WARP_SIZE];
    for (unsigned n : of_warp)
      if (n % WARP_SIZE) fail("named_sync of part of a warp, " + std::to_string(n) + " lanes, at " + text(loc));
  }
  block_meeting(g, count, false, "named_sync", loc);
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
  if (reinterpret_cast<uintptr_t>(p) % n)
    fail("address not aligned to " + std::to_string(n) + " bytes at " + text(loc));
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
    fail("carved past the " + std::to_string(machine->dynamic_bytes) + " bytes of dynamic shared memory at " +
         text(loc));
  if (!m.data) m = fresh(bytes, 128);
  if (m.bytes != bytes) fail("two arrays of different sizes carved from one place at " + text(loc));
  return m.data.get();
}

Memory fresh(size_t bytes, size_t align) {
  Memory m;
  void* p = nullptr;
  if (posix_memalign(&p, align, bytes ? bytes : 1)) std::abort();  // the exact size: rounding up hides overruns
  std::memset(p, 0xCD, bytes);
  m.data.reset(p);
  m.bytes = bytes;
  return m;
}
}  // namespace emu
