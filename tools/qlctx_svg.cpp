#include "qlctx_svg.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "net/cone.h"
#include "net/dependency.h"

namespace ql::ctx {
namespace {

// Beyond these a drawing shows nothing any more.
constexpr std::int64_t kMostTokens = 1024;
constexpr std::size_t kMostRows = 64;

// Pixels.
constexpr double kLeft = 150, kRight = 165, kTop = 78, kBottom = 124;
constexpr double kRowDistance = 31, kScaleDistance = 20;
constexpr double kState = 15, kPast = 7;  // heights
constexpr double kTokensWidth = 1000, kSmallestToken = 2.5, kLargestToken = 30;
constexpr double kSmallestWidth = 780;
constexpr double kLane = 9;  // between the lines that lead to the average

// Shapes tell the kinds apart in black and white, too: rectangle, pill, hexagon.
constexpr const char* kStyle = R"(
  text { font-family: sans-serif; font-size: 12px; fill: #222; }
  .small { font-size: 10px; fill: #555; }
  .large { font-size: 15px; font-weight: bold; }
  .segment, .memory, .compressed { fill: #fff; stroke-width: 1; }
  .segment { stroke: #14497f; }
  .memory { stroke: #b4571a; }
  .compressed { stroke: #6b2c86; }
  .segment.in { fill: #2f76b8; }
  .memory.in { fill: #f2a869; }
  .compressed.in { fill: #c79bdb; }
  .chosen { stroke: #000; stroke-width: 2; }
  .past { fill: #b9b9b9; }
  .cone { fill: #2f76b8; fill-opacity: 0.1; }
  .now { fill: #f4f1e6; }
  .step { stroke: #ddd; stroke-width: 1; }
  .line { fill: none; stroke: #222; stroke-width: 1; }
  .lane { fill: none; stroke: #444; stroke-width: 1.2; }
  .dashed { fill: none; stroke: #222; stroke-width: 1; stroke-dasharray: 3 3; }
)";

struct Interval {
  std::int64_t begin = INT64_MAX, end = INT64_MIN;  // tokens, relative to the segment's first
  bool empty() const { return begin >= end; }
  void add(std::int64_t first, std::int64_t past_last) {
    begin = std::min(begin, first);
    end = std::max(end, past_last);
  }
};

std::string minus(std::int64_t tokens) {
  return tokens == 0 ? "t" : fmt::format("t \u2212 {}", tokens);
}

std::string count(std::int64_t number, const char* noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

class Drawing {
 public:
  Drawing(const Row& row, std::int64_t position)
      : row_(row),
        position_(position),
        places_(net::places(row.geometry)),
        segment_(row.geometry.lengths.segment),
        reach_(position -
               net::oldest_dependencies(row.geometry)[static_cast<std::size_t>(position)]) {
    check_size();
    cone_ = net::cone_of(row.geometry, position);
    for (std::size_t place = 0; place < places_.size(); ++place) {
      extents_.push_back(extent_of(place));
      first_ = std::min({first_, extents_.back().begin, window_begin(place)});
    }
    token_ = std::clamp(kTokensWidth / static_cast<double>(segment_ - first_), kSmallestToken,
                        kLargestToken);
    double y = kTop;
    for (std::size_t place = places_.size(); place-- > 0;) {
      heights_.push_back(y);
      const bool new_scale = places_[place].source == net::Place::Source::kCompressed ||
                             places_[place].source == net::Place::Source::kAveraged;
      y += kRowDistance + (new_scale ? kScaleDistance : 0);
    }
    std::reverse(heights_.begin(), heights_.end());
  }

  std::string draw() {
    const double width = std::max(x(segment_) + kRight, kSmallestWidth),
                 height = heights_.front() + kState + kBottom;
    add(R"(<?xml version="1.0" encoding="UTF-8"?>)"
        "\n");
    add(R"(<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="{0:.0f}" height="{1:.0f}" )"
        R"(viewBox="0 0 {0:.0f} {1:.0f}">)"
        "\n",
        width, height);
    add("<title>{}</title>\n<desc>{}</desc>\n", title(), description());
    add("<style type=\"text/css\">{}</style>\n", kStyle);
    add(R"(<rect x="0" y="0" width="{:.0f}" height="{:.0f}" fill="#fff"/>)"
        "\n",
        width, height);
    text(kLeft, 24, "large", title());
    text(kLeft, 42, "", subtitle());
    draw_steps();
    for (std::size_t place = 1; place < places_.size(); ++place) {
      draw_cone_between(place - 1, place);
    }
    for (std::size_t place = 0; place < places_.size(); ++place) {
      draw_cone_at(place);
    }
    draw_lanes();
    for (std::size_t place = 0; place < places_.size(); ++place) {
      draw_past(place);
      draw_memory(place);
      draw_segment(place);
      text(kLeft - 16, heights_[place] + 12, "", label(place), "end");
    }
    draw_pointer();
    draw_scale_labels();
    draw_axis();
    draw_legend(height - 22);
    add("</svg>\n");
    return std::move(out_);
  }

 private:
  void check_size() const {
    std::int64_t states = 0;
    for (const net::Place& place : places_) {
      states = std::max(states, place.granularity * (place.segment + place.memory) +
                                    place.compressed_memory * row_.geometry.rate);
    }
    const std::int64_t tokens = std::max(reach_ + segment_ - position_, states);
    if (tokens > kMostTokens || places_.size() > kMostRows) {
      throw Error("--format svg",
                  fmt::format("{} tokens and {} rows of states are too many for a drawing, which "
                              "shows {} and {} at most",
                              tokens, places_.size(), kMostTokens, kMostRows),
                  "draw a network of the same kind with shorter lengths or fewer layers");
    }
  }

  // What the cone covers in one place.
  Interval extent_of(std::size_t place) const {
    Interval extent;
    each_in_cone(
        place, [&](std::int64_t first) { extent.add(first, first + places_[place].granularity); });
    return extent;
  }

  template <typename Visit>
  void each_in_cone(std::size_t place, const Visit& visit) const {
    for (std::size_t k = 0; k < cone_[place].size(); ++k) {
      for (std::size_t i = 0; i < cone_[place][k].size(); ++i) {
        if (cone_[place][k][i]) {
          visit(net::first_token(places_[place], static_cast<std::int64_t>(k),
                                 static_cast<std::int64_t>(i)));
        }
      }
    }
  }

  // The first token of the oldest state that is kept.
  std::int64_t window_begin(std::size_t place) const {
    const net::Place& here = places_[place];
    return net::first_token(here, 0, -here.memory - here.compressed_memory * row_.geometry.rate);
  }

  // Whether the output depends on a state that was in the segment `steps_back` steps ago.
  bool in_cone(std::size_t place, std::int64_t steps_back, std::int64_t index) const {
    const auto& steps = cone_[place];
    return static_cast<std::size_t>(steps_back) < steps.size() &&
           steps[static_cast<std::size_t>(steps_back)][static_cast<std::size_t>(index)];
  }
  bool memory_in_cone(std::size_t place, std::int64_t age) const {
    const std::int64_t shift = places_[place].shift;
    return in_cone(place, 1 + age / shift, shift - 1 - age % shift);
  }

  double x(std::int64_t token) const {
    return kLeft + static_cast<double>(token - first_) * token_;
  }

  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  void text(double at_x, double at_y, const char* style, const std::string& words,
            const char* anchor = "start") {
    add(R"(<text x="{:.1f}" y="{:.1f}" class="{}" text-anchor="{}">{}</text>)"
        "\n",
        at_x, at_y, style, anchor, words);
  }

  std::string title() const {
    const net::Lengths& lengths = row_.geometry.lengths;
    std::string words =
        fmt::format("{}, segment {}, memory {}", net::to_text(row_.network.architecture),
                    lengths.segment, lengths.memory);
    if (lengths.compressed_memory > 0) {
      words += fmt::format(", compressed memory {}", lengths.compressed_memory);
    }
    return words;
  }

  std::string subtitle() const {
    const std::vector<std::int64_t>& scales = row_.network.scales;
    std::string words = scales == std::vector<std::int64_t>{1}
                            ? "1 layer"
                            : fmt::format("{} layers", fmt::join(scales, " + "));
    if (row_.network.output_layers > 0) {
      words += fmt::format(", {} in the output block", row_.network.output_layers);
    }
    if (row_.network.scales.size() > 1 || row_.geometry.compressed_memory > 0) {
      words += fmt::format(", compression rate {}", row_.network.rate);
    }
    return words;
  }

  std::string description() const {
    return fmt::format(
        "Every row is a place of the network, the output at the top, the embedded tokens at the "
        "bottom. Rectangles are states of the current segment, pills states of memories, hexagons "
        "states of compressed memories. Filled are those that the output state at position {} of "
        "{} depends on; small grey blocks are states of earlier steps that it depends on and that "
        "no memory holds any more. The oldest token it depends on is {} tokens before its own.",
        position_ + 1, segment_, reach_);
  }

  std::string label(std::size_t place) const {
    std::string words;
    switch (places_[place].source) {
      case net::Place::Source::kTokens:
        words = "embedded tokens";
        break;
      case net::Place::Source::kLayer:
        words = fmt::format("layer {}", layers_up_to(place));
        break;
      case net::Place::Source::kCompressed:
        words = fmt::format("{} of {} states", net::to_text(row_.network.pool), row_.geometry.rate);
        break;
      case net::Place::Source::kAveraged:
        words = "average of scales";
        break;
    }
    return place + 1 == places_.size() ? "output: " + words : words;
  }

  std::int64_t layers_up_to(std::size_t place) const {
    return std::count_if(
        places_.begin(), places_.begin() + static_cast<std::ptrdiff_t>(place) + 1,
        [](const net::Place& here) { return here.source == net::Place::Source::kLayer; });
  }

  // The current segment's tokens, and where the steps before it began.
  void draw_steps() {
    const double top = kTop - 26, bottom = heights_.front() + kState + 10;
    add(R"(<rect class="now" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)"
        "\n",
        x(0), top, x(segment_) - x(0), bottom - top);
    text((x(0) + x(segment_)) / 2, top + 11, "small", "this step", "middle");
    if (static_cast<double>(segment_) * token_ < 6) {
      return;
    }
    for (std::int64_t begin = -segment_; begin >= first_; begin -= segment_) {
      add(R"(<path class="step" d="M{0:.1f} {1:.1f}V{2:.1f}"/>)"
          "\n",
          x(begin), top, bottom);
    }
  }

  // The row itself.
  void draw_cone_at(std::size_t place) {
    const Interval& extent = extents_[place];
    if (!extent.empty()) {
      add(R"(<polygon class="cone" points="{0:.1f},{2:.1f} {1:.1f},{2:.1f} {1:.1f},{3:.1f} {0:.1f},{3:.1f}"/>)"
          "\n",
          x(extent.begin), x(extent.end), heights_[place], heights_[place] + kState);
    }
  }

  void draw_cone_between(std::size_t below, std::size_t above) {
    const Interval &low = extents_[below], &high = extents_[above];
    if (low.empty() || high.empty()) {
      return;
    }
    add(R"(<polygon class="cone" points="{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}"/>)"
        "\n",
        x(high.begin), heights_[above] + kState, x(high.end), heights_[above] + kState, x(low.end),
        heights_[below], x(low.begin), heights_[below]);
  }

  // From the output of every scale to the average, at the right.
  void draw_lanes() {
    const auto average = std::find_if(places_.begin(), places_.end(), [](const net::Place& place) {
      return place.source == net::Place::Source::kAveraged;
    });
    if (average == places_.end()) {
      return;
    }
    const double end = heights_[static_cast<std::size_t>(average - places_.begin())] + kState / 2;
    double lane = x(segment_) + 8 + kLane * static_cast<double>(row_.geometry.scales.size());
    for (std::size_t place = 0; places_[place].source != net::Place::Source::kAveraged; ++place) {
      if (places_[place + 1].scale == places_[place].scale) {
        continue;
      }
      add(R"(<path class="lane" d="M{0:.1f} {1:.1f}H{2:.1f}V{3:.1f}H{4:.1f}"/>)"
          "\n",
          x(segment_) + 2, heights_[place] + kState / 2, lane, end, x(segment_) + 8);
      lane -= kLane;
    }
    add(R"(<path d="M{0:.1f} {1:.1f}l7 -4v8z" fill="#444"/>)"
        "\n",
        x(segment_) + 2, end);
  }

  // Dependencies that are in no memory any more: they live on in the states above them.
  void draw_past(std::size_t place) {
    std::vector<std::int64_t> tokens;
    each_in_cone(place, [&](std::int64_t first) {
      if (first < window_begin(place)) {
        tokens.push_back(first);
      }
    });
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    if (tokens.empty()) {
      return;
    }
    const double width = static_cast<double>(places_[place].granularity) * token_;
    const double gap = std::min(1.5, width / 4);
    add(R"(<path class="past" d=")");
    for (const std::int64_t token : tokens) {
      add("M{:.1f} {:.1f}h{:.1f}v{}h-{:.1f}z", x(token) + gap / 2,
          heights_[place] + (kState - kPast) / 2, width - gap, kPast, width - gap);
    }
    add("\"/>\n");
  }

  void draw_memory(std::size_t place) {
    const net::Place& here = places_[place];
    const std::int64_t rate = row_.geometry.rate;
    for (std::int64_t i = here.compressed_memory; i > 0; --i) {
      bool in = false;
      for (std::int64_t age = (i - 1) * rate; age < i * rate; ++age) {
        in = in || memory_in_cone(place, here.memory + age);
      }
      const double left = x(net::first_token(here, 0, -here.memory - i * rate)) + 1;
      const double width = static_cast<double>(rate) * token_ - 2;
      const double tip = std::min(width / 4, kState / 2), top = heights_[place];
      add(R"(<path class="compressed{}" d="M{:.1f} {:.1f}l{:.1f} -{}h{:.1f}l{:.1f} {}l-{:.1f} {}h-{:.1f}z"/>)"
          "\n",
          in ? " in" : "", left, top + kState / 2, tip, kState / 2, width - 2 * tip, tip,
          kState / 2, tip, kState / 2, width - 2 * tip);
    }
    for (std::int64_t age = here.memory - 1; age >= 0; --age) {
      const bool in = memory_in_cone(place, age);
      draw_state(place, net::first_token(here, 0, -1 - age), in ? "memory in" : "memory",
                 kState / 2);
    }
  }

  void draw_segment(std::size_t place) {
    for (std::int64_t i = 0; i < places_[place].segment; ++i) {
      const bool chosen = place + 1 == places_.size() && i == position_;
      draw_state(place, net::first_token(places_[place], 0, i),
                 chosen ? "segment in chosen" : (in_cone(place, 0, i) ? "segment in" : "segment"),
                 0);
    }
  }

  // A pointer, for states that are too narrow to show their frame.
  void draw_pointer() {
    add(R"(<path d="M{:.1f} {:.1f}l-5 -7h10z" fill="#000"/>)"
        "\n",
        x(position_) + token_ / 2, heights_.back() - 3);
  }

  void draw_state(std::size_t place, std::int64_t first, const char* style, double round) {
    const double width = static_cast<double>(places_[place].granularity) * token_;
    const double gap = std::min(2.0, width / 4);
    const double inner = width - gap;
    add(R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}")", style,
        x(first) + gap / 2, heights_[place], inner, kState);
    if (round > 0) {
      add(R"( rx="{:.1f}" ry="{:.1f}")", std::min(round, inner / 2), std::min(round, inner / 2));
    }
    add("/>\n");
  }

  // At the right of every scale: what its states are.
  void draw_scale_labels() {
    const double left = x(segment_) + 20 + kLane * static_cast<double>(row_.geometry.scales.size());
    for (std::size_t place = 0; place < places_.size(); ++place) {
      if (place > 0 && places_[place].scale == places_[place - 1].scale) {
        continue;
      }
      std::size_t last = place;
      while (last + 1 < places_.size() && places_[last + 1].scale == places_[place].scale) {
        ++last;
      }
      const double middle = (heights_[place] + heights_[last]) / 2 - 2;
      const bool output = places_[place].scale == row_.geometry.scales.size();
      text(left, middle, "",
           output ? "output block" : fmt::format("scale {}", places_[place].scale + 1));
      text(left, middle + 14, "small", count(places_[place].granularity, "token") + " a state");
      std::string words =
          fmt::format("segment {}, memory {}", places_[place].segment, places_[place].memory);
      if (places_[place].compressed_memory > 0) {
        words += fmt::format(" + {}", places_[place].compressed_memory);
      }
      text(left, middle + 27, "small", words);
    }
  }

  // The tokens, and the length that the drawing is about.
  void draw_axis() {
    const double y = heights_.front() + kState + 16;
    const std::int64_t oldest = position_ - reach_;
    const auto middle = [&](std::int64_t token) { return x(token) + token_ / 2; };
    add(R"(<path class="line" d="M{:.1f} {:.1f}H{:.1f}"/>)"
        "\n",
        x(first_), y, x(segment_));
    std::int64_t distance = 1;
    while (static_cast<double>(distance) * token_ < 46) {
      distance *= 2;
    }
    for (std::int64_t back = 0; position_ - back >= first_; back += distance) {
      add(R"(<path class="line" d="M{:.1f} {:.1f}v4"/>)"
          "\n",
          middle(position_ - back), y);
      text(middle(position_ - back), y + 16, "small", minus(back), "middle");
    }
    const double arrow = y + 32;
    // Interrupted where the labels of the ticks are.
    for (const std::int64_t token : {oldest, position_}) {
      add(R"(<path class="dashed" d="M{0:.1f} {1:.1f}V{2:.1f}M{0:.1f} {3:.1f}V{4:.1f}"/>)"
          "\n",
          middle(token), heights_.front() + kState + 2, y, y + 20, arrow + 6);
    }
    if (reach_ > 0) {
      add(R"(<path class="line" d="M{0:.1f} {1:.1f}H{2:.1f}"/>)"
          "\n",
          middle(oldest), arrow, middle(position_));
      add(R"(<path d="M{0:.1f} {2:.1f}l6 -3.5v7zM{1:.1f} {2:.1f}l-6 -3.5v7z" fill="#222"/>)"
          "\n",
          middle(oldest), middle(position_), arrow);
    }
    const bool wide = static_cast<double>(reach_) * token_ > 260;
    add(R"(<text id="context" x="{:.1f}" y="{:.1f}" text-anchor="{}">context length {}: oldest token )"
        "{}</text>\n",
        wide ? (middle(oldest) + middle(position_)) / 2 : x(first_), arrow + 18,
        wide ? "middle" : "start", reach_, minus(reach_));
  }

  void draw_legend(double y) {
    double at = kLeft;
    const auto item = [&](const std::string& shape, const std::string& words) {
      add("<g transform=\"translate({:.1f} {:.1f})\">{}</g>\n", at, y - 11, shape);
      text(at + 34, y, "", words);
      at += 54 + 6.2 * static_cast<double>(words.size());
    };
    // Without classes: these are no states.
    item(R"(<rect width="12" height="14" fill="#fff" stroke="#14497f"/>)"
         R"(<rect x="16" width="12" height="14" fill="#2f76b8" stroke="#14497f"/>)",
         "segment");
    if (row_.geometry.recurrent) {
      item(R"(<rect width="12" height="14" rx="6" fill="#fff" stroke="#b4571a"/>)"
           R"(<rect x="16" width="12" height="14" rx="6" fill="#f2a869" stroke="#b4571a"/>)",
           "memory");
    }
    if (row_.geometry.compressed_memory > 0) {
      item(R"(<path d="M0 7l4 -7h5l4 7l-4 7h-5z" fill="#fff" stroke="#6b2c86"/>)"
           R"(<path d="M16 7l4 -7h5l4 7l-4 7h-5z" fill="#c79bdb" stroke="#6b2c86"/>)",
           "compressed");
    }
    if (row_.geometry.recurrent) {
      item(R"(<rect x="8" y="4" width="12" height="7" fill="#b9b9b9"/>)", "of earlier steps");
    }
    text(at, y, "", "filled: the framed output state depends on it");
  }

  const Row& row_;
  std::int64_t position_;
  std::vector<net::Place> places_;
  std::int64_t segment_, reach_;
  net::Cone cone_;
  std::vector<Interval> extents_;
  std::int64_t first_ = 0;  // the first token of the drawing
  double token_ = 0;        // its width
  std::vector<double> heights_;
  std::string out_;
};

}  // namespace

std::string draw_svg(const Row& row, std::int64_t position) {
  return Drawing(row, position).draw();
}

}  // namespace ql::ctx
