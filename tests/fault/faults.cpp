// A library to preload, which makes chosen calls of a program fail.
//
//   QL_FAULT=CALL:WHEN:HOW
//     CALL  open, read, write (also pread and pwrite), fsync, ftruncate, close, rename, link,
//           mkdir, malloc (every allocation), realtime (the system's clock), thread (the start
//           of a std::thread)
//     WHEN  3: the third call only; 3+: the third and all later calls; every: each call, but only
//           once: when it is repeated at once it succeeds, as after a signal
//     HOW   the name of an error; short: half of the bytes are read or written; back: the clock
//           is a day slow; stop: SIGTERM comes just before a read, write or fsync begins;
//           late: 16 seconds pass before it begins
//   QL_FAULT_FOLDER=DIR    only calls on files below this folder count
//   QL_FAULT_BYTES=N[-M]   only allocations of N bytes or more, and at most M, count
//   QL_FAULT_NO_LINKS=1    in addition, no file there gets a second name: no hard links
//   QL_FAULT_FIRED=FILE    is made when the first chosen call fails
//
// Counting begins with main(), because earlier calls are those of the C++ library.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

struct NamedError {
  const char* name;
  int number;
};
constexpr NamedError kErrors[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO},       {"EINTR", EINTR},
                                  {"EACCES", EACCES}, {"ENOENT", ENOENT}, {"EROFS", EROFS},
                                  {"EMFILE", EMFILE}, {"ENOMEM", ENOMEM}, {"EDQUOT", EDQUOT},
                                  {"EXDEV", EXDEV},   {"EMLINK", EMLINK}, {"EAGAIN", EAGAIN}};

enum class When { kOnce, kFrom, kEvery };
enum class How { kError, kShort, kBack, kStop, kLate };

// It takes no memory from the heap, because it is in use during allocations.
struct Fault {
  char call[16] = "";
  long first = 0;
  When when = When::kOnce;
  How how = How::kError;
  int error = 0;
  const char* folder = nullptr;
  const char* fired_file = nullptr;
  bool no_links = false;
  std::size_t least_bytes = 0, most_bytes = SIZE_MAX;
};

Fault fault;
std::atomic<bool> armed{false};
std::atomic<bool> fired{false};
std::atomic<long> calls{0};

[[noreturn]] void refuse(const char* text) {
  dprintf(STDERR_FILENO, "faults: QL_FAULT=%s is not understood\n", text);
  _exit(125);
}

void read_fault() {
  const char* text = getenv("QL_FAULT");
  if (text == nullptr) return;
  char when[16] = "", how[16] = "";
  if (sscanf(text, "%15[a-z]:%15[0-9a-z+]:%15[A-Za-z]", fault.call, when, how) != 3) refuse(text);
  char* end = when;
  if (strcmp(when, "every") == 0) {
    fault.when = When::kEvery;
  } else {
    fault.first = strtol(when, &end, 10);
    if (fault.first < 1) refuse(text);
    if (strcmp(end, "+") == 0) fault.when = When::kFrom;
  }
  if (strcmp(how, "short") == 0) {
    fault.how = How::kShort;
  } else if (strcmp(how, "back") == 0) {
    fault.how = How::kBack;
  } else if (strcmp(how, "stop") == 0) {
    fault.how = How::kStop;
  } else if (strcmp(how, "late") == 0) {
    fault.how = How::kLate;
  } else {
    for (const NamedError& error : kErrors) {
      if (strcmp(how, error.name) == 0) fault.error = error.number;
    }
    if (fault.error == 0) refuse(text);
  }
  fault.folder = getenv("QL_FAULT_FOLDER");
  fault.fired_file = getenv("QL_FAULT_FIRED");
  fault.no_links = getenv("QL_FAULT_NO_LINKS") != nullptr;
  if (const char* bytes = getenv("QL_FAULT_BYTES")) {
    char* after = nullptr;
    fault.least_bytes = strtoul(bytes, &after, 10);
    if (*after == '-') fault.most_bytes = strtoul(after + 1, nullptr, 10);
  }
  armed = true;
}

// Makes the system calls directly, so that they are not counted.
void leave_mark() {
  if (fired.exchange(true) || fault.fired_file == nullptr) return;
  const long mark = syscall(SYS_openat, AT_FDCWD, fault.fired_file, O_WRONLY | O_CREAT, 0666);
  if (mark >= 0) syscall(SYS_close, mark);
}

bool is_chosen(const char* call) { return armed && strcmp(call, fault.call) == 0; }

// Counts a call of the chosen kind. Returns true when it must fail.
bool is_due() {
  const long number = ++calls;
  bool due = false;
  switch (fault.when) {
    case When::kOnce:
      due = number == fault.first;
      break;
    case When::kFrom:
      due = number >= fault.first;
      break;
    case When::kEvery: {
      // Short transfers end by themselves. But an error must not come twice in a row.
      static thread_local bool failed = false;
      failed = fault.how != How::kError || !failed;
      due = failed;
      break;
    }
  }
  if (due) leave_mark();
  return due;
}

bool is_below_folder(const char* path) {
  if (fault.folder == nullptr) return true;
  char absolute[2 * PATH_MAX];
  if (path[0] == '/') {
    snprintf(absolute, sizeof absolute, "%s", path);
  } else {
    char current[PATH_MAX];
    if (getcwd(current, sizeof current) == nullptr) return false;
    snprintf(absolute, sizeof absolute, "%s/%s", current, path);
  }
  const std::size_t length = strlen(fault.folder);
  return strncmp(absolute, fault.folder, length) == 0 && absolute[length] == '/';
}

bool is_below_folder(int descriptor) {
  if (fault.folder == nullptr) return true;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  return is_below_folder(path);
}

// Returns true when this call must fail, and sets errno. Otherwise errno does not change.
template <typename File>
bool fails(const char* call, File file) {
  if (!is_chosen(call) || fault.how != How::kError) return false;
  const int before = errno;
  const bool due = is_below_folder(file) && is_due();
  errno = due ? fault.error : before;
  return due;
}

// Returns the number of bytes that a transfer may have.
std::size_t allowed(const char* call, int descriptor, std::size_t size) {
  if (!is_chosen(call) || fault.how == How::kError || fault.how == How::kBack) return size;
  if (size < 2) return size;
  const int before = errno;
  const bool due = is_below_folder(descriptor) && is_due();
  if (due && fault.how == How::kStop) raise(SIGTERM);
  timespec left = {due && fault.how == How::kLate ? 16 : 0, 0};
  while (left.tv_sec > 0 && nanosleep(&left, &left) != 0) {  // a signal may interrupt it
  }
  errno = before;
  return due && fault.how == How::kShort ? size / 2 : size;
}

bool fails_to_allocate(std::size_t size) {
  if (!is_chosen("malloc") || size < fault.least_bytes || size > fault.most_bytes) return false;
  if (!is_due()) return false;
  errno = ENOMEM;
  return true;
}

// Pools in libraries make threads without std::thread, and some cannot handle a failure.
bool is_thread_refused(void* (*begin)(void*)) {
  Dl_info info{};
  return is_chosen("thread") && dladdr(reinterpret_cast<void*>(begin), &info) != 0 &&
         strstr(info.dli_fname, "libstdc++") != nullptr && is_due();
}

bool is_clock_set_back() { return is_chosen("realtime") && is_due(); }

// Returns the function that this library replaces.
template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int (*program)(int, char**, char**) = nullptr;

int main_with_faults(int argc, char** argv, char** environment) {
  read_fault();
  const int code = program(argc, argv, environment);
  armed = false;
  return code;
}

constexpr time_t kDay = 24L * 60 * 60;

}  // namespace

extern "C" {

// NOLINTNEXTLINE(readability-identifier-naming): the name is glibc's
int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(),
                      void (*fini)(), void (*rtld_fini)(), void* stack_end) {
  program = main;
  return real<decltype(__libc_start_main)>("__libc_start_main")(main_with_faults, argc, argv, init,
                                                                fini, rtld_fini, stack_end);
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  static auto* const next = real<int(const char*, int, ...)>("open");
  return fails("open", path) ? -1 : next(path, flags, mode);
}

ssize_t read(int descriptor, void* data, size_t size) {
  static auto* const next = real<decltype(read)>("read");
  if (fails("read", descriptor)) return -1;
  return next(descriptor, data, allowed("read", descriptor, size));
}

ssize_t pread(int descriptor, void* data, size_t size, off_t offset) {
  static auto* const next = real<decltype(pread)>("pread");
  if (fails("read", descriptor)) return -1;
  return next(descriptor, data, allowed("read", descriptor, size), offset);
}

ssize_t write(int descriptor, const void* data, size_t size) {
  static auto* const next = real<decltype(write)>("write");
  if (fails("write", descriptor)) return -1;
  return next(descriptor, data, allowed("write", descriptor, size));
}

ssize_t pwrite(int descriptor, const void* data, size_t size, off_t offset) {
  static auto* const next = real<decltype(pwrite)>("pwrite");
  if (fails("write", descriptor)) return -1;
  return next(descriptor, data, allowed("write", descriptor, size), offset);
}

int fsync(int descriptor) {
  static auto* const next = real<decltype(fsync)>("fsync");
  allowed("fsync", descriptor, 2);
  return fails("fsync", descriptor) ? -1 : next(descriptor);
}

int ftruncate(int descriptor, off_t length) noexcept {
  static auto* const next = real<int(int, off_t)>("ftruncate");
  return fails("ftruncate", descriptor) ? -1 : next(descriptor, length);
}

// The descriptor is closed in spite of the error, as Linux does.
int close(int descriptor) {
  static auto* const next = real<decltype(close)>("close");
  const bool fail = fails("close", descriptor);
  const int error = errno;
  const int result = next(descriptor);
  if (!fail) return result;
  errno = error;
  return -1;
}

int rename(const char* from, const char* to) noexcept {
  static auto* const next = real<int(const char*, const char*)>("rename");
  return fails("rename", to) ? -1 : next(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  static auto* const next = real<int(int, const char*, int, const char*, unsigned)>("renameat2");
  return fails("rename", to) ? -1 : next(from_folder, from, to_folder, to, flags);
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  static auto* const next = real<int(int, const char*, int, const char*, int)>("linkat");
  if (armed && fault.no_links && is_below_folder(to)) {
    errno = EPERM;
    return -1;
  }
  return fails("link", to) ? -1 : next(from_folder, from, to_folder, to, flags);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const next = real<int(const char*, mode_t)>("mkdir");
  return fails("mkdir", path) ? -1 : next(path, mode);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*begin)(void*),
                   void* argument) noexcept {
  static auto* const next =
      real<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return is_thread_refused(begin) ? fault.error : next(thread, attributes, begin, argument);
}

// These are glibc's own names, because dlsym() may allocate.
// NOLINTBEGIN(readability-identifier-naming)
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
// NOLINTEND(readability-identifier-naming)

void* malloc(size_t size) noexcept {
  return fails_to_allocate(size) ? nullptr : __libc_malloc(size);
}

void* calloc(size_t count, size_t size) noexcept {
  return fails_to_allocate(count * size) ? nullptr : __libc_calloc(count, size);
}

void* realloc(void* memory, size_t size) noexcept {
  return fails_to_allocate(size) ? nullptr : __libc_realloc(memory, size);
}

void* aligned_alloc(size_t alignment, size_t size) noexcept {
  return fails_to_allocate(size) ? nullptr : __libc_memalign(alignment, size);
}

int posix_memalign(void** memory, size_t alignment, size_t size) noexcept {
  if (fails_to_allocate(size)) return ENOMEM;
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}

int clock_gettime(clockid_t clock, struct timespec* now) noexcept {
  static auto* const next = real<int(clockid_t, struct timespec*)>("clock_gettime");
  const int result = next(clock, now);
  if (clock == CLOCK_REALTIME && is_clock_set_back()) now->tv_sec -= kDay;
  return result;
}

time_t time(time_t* now) noexcept {
  struct timespec precise {};
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now != nullptr) *now = precise.tv_sec;
  return precise.tv_sec;
}

int gettimeofday(struct timeval* now, void*) noexcept {
  struct timespec precise {};
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

}  // extern "C"
