// Values with identity in device memory. A value is 64 bits, repeated over its range so that the byte at
// address a holds byte a % 8 of it. `values.py` says the same for host memory.

#define READ 1      // its old content is judged
#define FOLD 2      // its old content goes into what the op writes
#define WRITE 4
#define XOR 8
#define KIN 16      // other parts of the same op may touch the range: no mark, no second look
#define TARGET 32   // bytes are really copied to it before `end`: `look` has seen whether the mark was there

// Columns of a row of `access`.
#define DATA 0      // where in `mem`
#define BYTES 1
#define NOMINAL 2   // address that digest and pattern count with; DATA for ranges that are not staged
#define MODE 3
#define COPIED 4    // bytes that the op really copied; they are looked at where they went
#define COPIED_TO 5
#define SNAP 6      // where in `snap` what was read is kept, and behind it what was read at the end if it differs;
                    // TARGET: which bytes had lost the mark; -1: nowhere
#define OP 7
#define SEQ 8
#define COLUMNS 9

// Columns of a row of `slot`.
#define BEFORE 0
#define AFTER 1
#define STAMP 2
#define TORN 3      // given: the order of a pinned run says that something was written meanwhile
#define SLOTS 4

ulong mix(ulong x) {
  x += 0x9E3779B97F4A7C15UL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9UL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBUL;
  return x ^ (x >> 31);
}

ulong stamp_of(ulong op, ulong seq, ulong seen) { return mix(mix(mix(op ^ 0x5354414D50UL) + seq) ^ seen); }

ulong mark_of(ulong op) { return mix(op ^ 0x4D41524BUL); }

ulong digest(__global const uchar* at, ulong bytes, ulong nominal) {
  ulong sum = 0;
  for (ulong i = 0; i < bytes; ++i) sum += (1UL + at[i]) * mix(nominal + i);
  return sum;
}

void fill(__global uchar* at, ulong bytes, ulong nominal, ulong value) {
  for (ulong i = 0; i < bytes; ++i) at[i] = (uchar)(value >> (8 * ((nominal + i) & 7)));
}

int holds(__global const uchar* at, ulong bytes, ulong nominal, ulong value) {
  for (ulong i = 0; i < bytes; ++i)
    if (at[i] != (uchar)(value >> (8 * ((nominal + i) & 7)))) return 0;
  return 1;
}

// Write where the mark still stands. Where it does not, another write was in flight at the same time: what is
// left there is torn, and the mark says so.
void settle(__global uchar* at, ulong bytes, ulong nominal, ulong mark, ulong value, __global const uchar* lost) {
  for (ulong i = 0, next; i < bytes; i = next) {
    next = min(bytes, i + 8 - ((nominal + i) & 7));
    int intact = lost ? !lost[i] : holds(at + i, next - i, nominal + i, mark);
    fill(at + i, next - i, nominal + i, intact ? value : mark);
  }
}

// Others may do the same at the same time: whole words, atomically.
void flip(__global uchar* mem, ulong from, ulong bytes, ulong value) {
  __global volatile uint* words = (__global volatile uint*)mem;
  for (ulong word = from / 4; word * 4 < from + bytes; ++word) {
    uint mask = 0;
    for (ulong b = 0; b < 4; ++b) {
      ulong a = word * 4 + b;
      if (a >= from && a < from + bytes) mask |= (uint)(uchar)(value >> (8 * (a & 7))) << (8 * b);
    }
    atomic_xor(&words[word], mask);
  }
}

// Takes time. The host ends it early by a word in sink[1], when a run is given up.
__kernel void spin(__global volatile ulong* sink, ulong rounds) {
  ulong x = rounds;
  for (ulong i = 0; i < rounds; ++i) {
    x = x * 6364136223846793005UL + 1442695040888963407UL;
    if ((i & 0xFFFF) == 0 && sink[1]) break;
  }
  if (x == 42UL) sink[0] = x;   // keeps the loop
}

// The op begins: look at what it reads, keep a copy, mark what it writes as being written.
__kernel void begin(__global uchar* mem, __global const long* access, __global ulong* slot,
                    __global uchar* snap, long first, long last) {
  for (long a = first; a < last; ++a) {
    __global const long* row = access + a * COLUMNS;
    if (!(row[MODE] & FOLD)) continue;
    __global const uchar* at = mem + row[DATA];
    slot[a * SLOTS + BEFORE] = digest(at, row[BYTES], row[NOMINAL]);
    if (row[SNAP] >= 0)
      for (long i = 0; i < row[BYTES]; ++i) snap[row[SNAP] + i] = at[i];
  }
  for (long a = first; a < last; ++a) {
    __global const long* row = access + a * COLUMNS;
    if ((row[MODE] & WRITE) && !(row[MODE] & KIN))
      fill(mem + row[DATA], row[BYTES], row[NOMINAL], mark_of(row[OP]));
  }
}

// Before bytes are copied over a mark: note where it is not there any more.
__kernel void look(__global uchar* mem, __global const long* access, __global ulong* slot,
                   __global uchar* snap, long first, long last) {
  for (long a = first; a < last; ++a) {
    __global const long* row = access + a * COLUMNS;
    if (!(row[MODE] & TARGET) || row[SNAP] < 0) continue;
    ulong bytes = row[BYTES], nominal = row[NOMINAL];
    for (ulong i = 0, next; i < bytes; i = next) {
      next = min(bytes, i + 8 - ((nominal + i) & 7));
      snap[row[SNAP] + i] = !holds(mem + row[DATA] + i, next - i, nominal + i, mark_of(row[OP]));
    }
  }
}

// The op ends: look again, then write what depends on what it read.
__kernel void end(__global uchar* mem, __global const long* access, __global ulong* slot,
                  __global uchar* snap, long first, long last) {
  for (long a = first; a < last; ++a) {
    __global const long* row = access + a * COLUMNS;
    if (!(row[MODE] & FOLD)) continue;
    ulong before = slot[a * SLOTS + BEFORE], after = before, copied = row[COPIED];
    if (!(row[MODE] & KIN)) {
      if (row[MODE] & WRITE) {
        if (!holds(mem + row[DATA], row[BYTES], row[NOMINAL], mark_of(row[OP]))) after = ~before;
      } else {
        after = digest(mem + row[COPIED_TO], copied, row[NOMINAL]) +
                digest(mem + row[DATA] + copied, row[BYTES] - copied, row[NOMINAL] + copied);
      }
    }
    if (slot[a * SLOTS + TORN] && after == before) after = ~before;
    if (after != before && row[SNAP] >= 0)
      for (ulong i = 0; i < (ulong)row[BYTES]; ++i)
        snap[row[SNAP] + row[BYTES] + i] = i < copied ? mem[row[COPIED_TO] + i] : mem[row[DATA] + i];
    slot[a * SLOTS + AFTER] = after;
  }
  for (long a = first; a < last; ++a) {
    __global const long* row = access + a * COLUMNS;
    if (!(row[MODE] & (WRITE | XOR))) continue;
    ulong seen = 0;
    for (long r = first; r < last; ++r) {
      __global const long* other = access + r * COLUMNS;
      if (other[OP] != row[OP] || !(other[MODE] & FOLD)) continue;
      ulong before = slot[r * SLOTS + BEFORE], after = slot[r * SLOTS + AFTER];
      seen += mix(before + mix(other[SEQ]) + (before == after ? 0 : mix(after)));
    }
    ulong value = stamp_of(row[OP], row[SEQ], seen);
    slot[a * SLOTS + STAMP] = value;
    __global uchar* at = mem + row[DATA];
    if (row[MODE] & XOR) flip(mem, row[DATA], row[BYTES], value);
    else if (row[MODE] & KIN) fill(at, row[BYTES], row[NOMINAL], value);
    else if (!(row[MODE] & TARGET)) settle(at, row[BYTES], row[NOMINAL], mark_of(row[OP]), value, 0);
    else if (row[SNAP] < 0) fill(at, row[BYTES], row[NOMINAL], value);
    else settle(at, row[BYTES], row[NOMINAL], mark_of(row[OP]), value, snap + row[SNAP]);
  }
}

// Nobody's version: what two ops wrote at once.
__kernel void tear(__global uchar* mem, ulong from, ulong bytes, ulong nominal, ulong mark) {
  fill(mem + from, bytes, nominal, mark);
}

__kernel void xor_range(__global uchar* mem, ulong from, ulong bytes, ulong value) { flip(mem, from, bytes, value); }
