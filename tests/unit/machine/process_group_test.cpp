// Tests processes that compute together; the "processes" are threads of one.
#include <ATen/ATen.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <tuple>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "machine/process_group.h"
#include "unit/process_support.h"
#include "unit/torch_doctest.h"

namespace ql::machine {

TEST_SUITE_BEGIN("processes");

TEST_CASE("sums over processes have the same bits in each") {
  for (const int size : {1, 2, 3}) {
    CAPTURE(size);
    std::vector<at::Tensor> results(static_cast<std::size_t>(size));
    std::atomic<int> good{0};
    test::in_group(size, [&](ProcessGroup& group) {
      const at::Tensor values = at::arange(1000, at::kFloat) * 0.1 + group.rank();
      group.sum(values);
      results[static_cast<std::size_t>(group.rank())] = values;
      const std::string text = group.from_first(group.is_first() ? "a text" : "another");
      good += text == "a text" && group.from_first(std::string()).empty() &&
              group.from_first(std::int64_t{-7} - group.rank()) == -7;
    });
    CHECK(good == size);
    const double ranks = size * (size - 1) / 2.0;
    CHECK(at::allclose(results[0], at::arange(1000, at::kFloat) * 0.1 * size + ranks));
    for (const at::Tensor& result : results) CHECK(result.equal(results[0]));
  }
}

TEST_CASE("a single process is a group, whose sums are its own numbers") {
  ProcessGroup& group = ProcessGroup::single();
  CHECK(group.is_single());
  CHECK(group.is_first());
  CHECK(group.local_size() == 1);
  const at::Tensor values = at::arange(3, at::kFloat);
  group.sum(values);
  CHECK(values.equal(at::arange(3, at::kFloat)));
  CHECK(group.all_rows(values, 3).is_same(values));
  CHECK(group.share_of(7).first == 0);
  CHECK(group.share_of(7).count == 7);
  CHECK(group.from_first("text") == "text");
  CHECK(group.from_first(std::int64_t{-7}) == -7);
  CHECK(group.gather("text") == std::vector<std::string>{"text"});
  double clock = 5.5;
  CHECK(group.agree_on_stop(SIGTERM, &clock) == SIGTERM);
  CHECK(group.agree_on_stop(0) == 0);
  CHECK(clock == 5.5);
  group.require_same({{"seed", "1"}}, "");
  group.join_device(at::kCPU);
  group.await_device();
  group.check_for_stop();
  CHECK_THROWS_WITH_AS(run_in_group(group, [] { throw std::runtime_error("wrong"); }), "wrong",
                       std::runtime_error);
}

TEST_CASE("several sums are under way at once") {
  test::in_group(2, [](ProcessGroup& group) {
    std::vector<at::Tensor> tensors;
    std::vector<ProcessGroup::Wait> waits;
    for (int i = 0; i < 5; ++i) {
      tensors.push_back(at::full({100 + i}, i + group.rank(), at::kFloat));
      waits.push_back(group.start_sum(tensors.back()));
    }
    for (std::size_t i = 0; i < 5; ++i) {
      waits[i]();
      if (tensors[i].min().item<float>() != 2.0F * static_cast<float>(i) + 1) {
        throw std::runtime_error("a sum is wrong");
      }
    }
  });
}

TEST_CASE(
    "all processes stop by the signal that one of them got, and have the clock of the first") {
  for (const int signal_number : kStopSignals) {
    CAPTURE(signal_number);
    std::atomic<int> good{0};
    test::in_group(3, [&](ProcessGroup& group) {
      double clock = 5.5 + group.rank();
      good += group.agree_on_stop(group.rank() == 1 ? signal_number : 0, &clock) == signal_number;
      good += clock == 5.5;
      good += group.agree_on_stop(0) == 0;
      good += group.agree_on_stop(group.rank() == 1 ? signal_number : SIGHUP) == SIGHUP;
    });
    CHECK(good == 12);
  }
}

TEST_CASE("the first thing that differs between processes is named with both hosts") {
  struct Case {
    std::vector<Fact> first, other;
    std::string found;
  };
  const std::vector<Case> cases = {
      {{{"data", "x"}, {"seed", "1"}},
       {{"data", "y"}, {"seed", "2"}},
       "data: BC has y, but A has x"},
      {{{"data", "x"}, {"seed", "1"}},
       {{"data", "x"}, {"seed", "2"}},
       "seed: BC has 2, but A has 1"},
      {{{"data", "x"}}, {{"data", "x"}, {"seed", "2"}}, "seed: BC has 2, but A has nothing"},
      {{{"data", "x"}, {"seed", ""}}, {{"data", "x"}}, "seed: BC has nothing, but A has "}};
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  for (const Case& one : cases) {
    std::atomic<int> refused{0}, right{0};
    test::in_group(3, [&](ProcessGroup& group) {
      group.require_same(one.first, "");
      try {
        group.require_same(group.rank() == 2 ? one.other : one.first, "do this");
      } catch (const Error& error) {
        ++refused;
        std::string text = one.found + "; do this";
        text.replace(text.find("BC"), 2, std::string("process 2 of 3 on host ") + host);
        text.replace(text.find(" A ") + 1, 1, std::string("process 0 of 3 on host ") + host);
        right += text == error.what();
      }
    });
    CHECK(refused == 3);
    CHECK(right == 3);
  }
}

TEST_CASE("all others name the one that ends too early, whoever its neighbours are") {
  std::atomic<int> named{0};
  test::in_group(4, [&](ProcessGroup& group) {
    if (group.rank() == 2) return;
    try {
      group.sum(at::ones({1000}));
    } catch (const Error& error) {
      const std::string text = error.what();
      // On a busy machine one that lives may not answer in time, and is named as well.
      named += text.find("the connection to process ") != std::string::npos &&
               text.find("process 2 of 4 on host ") != std::string::npos;
    }
  });
  CHECK(named == 3);
}

TEST_CASE("one that lets the others wait is named after the timeout") {
  std::atomic<int> named{0};
  const auto begin = std::chrono::steady_clock::now();
  test::in_group(
      3,
      [&](ProcessGroup& group) {
        if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(12));
        try {
          group.sum(at::ones({1000}));
        } catch (const Error& error) {
          const std::string text = error.what();
          named += text.find("process 1 of 3 on host ") != std::string::npos &&
                   text.find("keeps the others waiting for too long") != std::string::npos;
        }
      },
      std::chrono::seconds(2));
  CHECK(named == 3);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(25));
}

TEST_CASE("an error of one ends the others with its words, and so does a signal") {
  std::atomic<int> heard{0}, stopped{0};
  for (const bool by_signal : {false, true}) {
    try {
      test::in_group(3, [&](ProcessGroup& group) {
        run_in_group(group, [&] {
          if (group.rank() == 1 && by_signal) throw Interrupted(SIGUSR1);
          if (group.rank() == 1) throw Error("valid/0.zst", "damaged");
          try {
            group.sum(at::ones({1000}));
          } catch (const Interrupted& stop) {
            stopped += stop.signal_number() == SIGUSR1;
          } catch (const Error& error) {
            const std::string text = error.what();
            heard += text.find(": valid/0.zst: damaged") != std::string::npos;
          }
        });
      });
    } catch (const std::runtime_error&) {
    }
  }
  CHECK(heard == 2);
  CHECK(stopped == 2);
}

TEST_CASE("a process that is one too many is refused, and the others go on") {
  std::atomic<int> refused{0}, good{0};
  LaunchedProcess process;
  process.size = process.local_size = 2;
  process.port = test::free_port();
  const auto join = [&](int rank, int size) {
    LaunchedProcess own = process;
    own.rank = rank;
    own.size = size;
    return std::make_unique<ProcessGroup>(own, std::chrono::seconds(20));
  };
  std::thread other([&] {
    const auto group = join(1, 2);
    const at::Tensor one = at::ones({1});
    group->sum(one);
    good += one.item<float>() == 2;
  });
  const auto group = join(0, 2);
  for (const auto& [rank, size, words] :
       {std::tuple(1, 2, "has the RANK of process 1 of 2 on host "),
        std::tuple(2, 3, "WORLD_SIZE: differs between process 2 of 3 on host ")}) {
    try {
      join(rank, size);
    } catch (const Error& error) {
      refused += std::string(error.what()).find(words) != std::string::npos;
    }
  }
  const at::Tensor one = at::ones({1});
  group->sum(one);
  good += one.item<float>() == 2;
  other.join();
  CHECK(refused == 2);
  CHECK(good == 2);
}

TEST_CASE("processes that do not agree on their number end together, and at once") {
  for (const int first : {2, 3}) {
    LaunchedProcess process;
    process.port = test::free_port();
    std::atomic<int> refused{0};
    const auto join = [&](int rank, int size) {
      LaunchedProcess own = process;
      own.rank = rank;
      own.size = size;
      try {
        const ProcessGroup group(own, std::chrono::seconds(60));
      } catch (const Error& error) {
        refused += std::string(error.what()).find("WORLD_SIZE: ") != std::string::npos;
      }
    };
    const auto begin = std::chrono::steady_clock::now();
    std::thread other([&] { join(1, 5 - first); });
    join(0, first);
    other.join();
    CHECK(refused == 2);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
  }
}

TEST_CASE("two jobs at one port are refused by name") {
  LaunchedProcess process;
  process.size = 2;
  process.port = test::free_port();
  process.job = "7.0";
  std::thread first(
      [process] { CHECK_THROWS_AS(ProcessGroup(process, std::chrono::seconds(6)), Error); });
  // The job that comes first keeps the port.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  process.rank = 1;
  process.job = "8.0";
  std::string words;
  try {
    const ProcessGroup group(process, std::chrono::seconds(20));
  } catch (const Error& error) {
    words = error.what();
  }
  first.join();
  CHECK(words.find("another job uses 127.0.0.1:") != std::string::npos);
}

// Connects to the port and sends the bytes. The connection stays while the object exists.
class Stranger {
 public:
  Stranger(int port, const std::string& bytes) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (::connect(socket_, any, sizeof address) != 0) {
      if (std::chrono::steady_clock::now() > end) throw std::runtime_error("nobody listens");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (::send(socket_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
      throw std::runtime_error("cannot send to the port");
    }
  }

 private:
  Descriptor socket_;
};

// The first request of c10d's protocol begins with a zero and a length of eight bytes, or with a
// zero and a number of four bytes.
TEST_CASE("a stranger that sends a part of a request is disconnected") {
  const auto meet_with_stranger = [](std::size_t length) {
    LaunchedProcess process;
    process.size = 2;
    process.port = test::free_port();
    std::atomic<int> heard{0};
    const auto join = [&](int rank) {
      LaunchedProcess own = process;
      own.rank = rank;
      ProcessGroup group(own, std::chrono::seconds(36));
      try {
        run_in_group(group, [&] {
          if (rank == 0) return group.sum(at::ones({1}));
          const Stranger during(process.port, std::string(1, '\0'));
          std::this_thread::sleep_for(std::chrono::seconds(18));
          throw Error("valid/0.zst", "damaged");
        });
      } catch (const Error& error) {
        heard += std::string(error.what()).find("valid/0.zst: damaged") != std::string::npos;
      }
    };
    std::thread first([&] { join(0); });
    const Stranger before(process.port, std::string("\0\x64\0\0\0\0\0\0\0abc", length));
    join(1);
    first.join();
    return heard.load();
  };
  auto short_part = std::async(std::launch::async, meet_with_stranger, 1);
  CHECK(meet_with_stranger(12) == 2);
  CHECK(short_part.get() == 2);
}

#ifndef QL_CUDA
TEST_CASE("GPUs cannot be joined without NCCL, and the CPU need not be") {
  std::atomic<int> refused{0};
  test::in_group(2, [&](ProcessGroup& group) {
    group.join_device(at::kCPU);
    group.await_device();
    try {
      group.join_device(c10::Device(at::kCUDA, 1));
    } catch (const UsageError& error) {
      const std::string text = error.what();
      refused +=
          text.find("--device: cuda:1: this program was built with a LibTorch without NCCL") == 0;
    }
    const at::Tensor one = at::ones({1}, at::kFloat);
    group.sum(one);  // goes on
    if (one.item<float>() != 2) throw std::runtime_error("a sum is wrong");
  });
  CHECK(refused == 2);
}
#endif

TEST_CASE("one that is done at once does not disturb those that still connect") {
  for (int i = 0; i < 10; ++i) test::in_group(6, [](ProcessGroup&) {});
}

TEST_CASE("rows are shared among processes without a gap") {
  std::vector<RowRange> shares(3);
  std::atomic<int> refused{0};
  test::in_group(3, [&](ProcessGroup& group) {
    shares[static_cast<std::size_t>(group.rank())] = group.share_of(10);
    try {
      group.share_of(2);
    } catch (const Error&) {
      ++refused;
    }
  });
  std::int64_t next = 0;
  for (const RowRange& share : shares) {
    CHECK(share.first == next);
    CHECK(share.count >= 3);
    CHECK(share.count <= 4);
    next += share.count;
  }
  CHECK(next == 10);
  CHECK(refused == 3);
}

TEST_SUITE_END();

}  // namespace ql::machine
