#include "machine/process_group.h"

#include <ATen/ATen.h>

#include <atomic>

#include "base/error.h"
#include "base/signals.h"
#include "process_support.h"
#include "torch_doctest.h"

namespace ql::machine {

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

TEST_CASE("several sums are under way at once") {
  test::in_group(2, [](ProcessGroup& group) {
    std::vector<at::Tensor> tensors;
    std::vector<ProcessGroup::Wait> waits;
    for (int i = 0; i < 5; ++i) {
      tensors.push_back(at::full({100 + i}, i + group.rank(), at::kFloat));
      waits.push_back(group.start_sum({tensors.back()}));
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

TEST_CASE("what differs between processes is found and named") {
  std::atomic<int> refused{0};
  test::in_group(3, [&](ProcessGroup& group) {
    group.require_same("the same", "data");
    try {
      group.require_same(group.rank() == 2 ? "b" : "a", "weights");
    } catch (const Error& error) {
      const std::string text = error.what();
      refused +=
          text.find("weights: not the same in all 3 processes: 2 differs from process 0") == 0;
    }
  });
  CHECK(refused == 3);
}

TEST_CASE("all others name the one that ends too early, whoever its neighbours are") {
  std::atomic<int> named{0};
  test::in_group(4, [&](ProcessGroup& group) {
    if (group.rank() == 2) {
      return;
    }
    try {
      group.sum(at::ones({1000}));
    } catch (const Error& error) {
      const std::string text = error.what();
      named += text.find("process 2 of 4 has ended") != std::string::npos;
    }
  });
  CHECK(named == 3);
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

}  // namespace ql::machine
