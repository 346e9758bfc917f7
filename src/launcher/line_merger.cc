#include "launcher/line_merger.h"

#include <format>

namespace xmpi::launcher {

void LineMerger::Add(RankId rank, std::string_view data, std::string* out) {
  if (data.empty()) return;
  Line& line = lines_[rank];
  const auto last = data.rfind('\n');
  if (last != std::string_view::npos) {
    const std::string_view whole = data.substr(0, last + 1);
    if (line.held.empty()) {
      Emit(rank, whole, out);
    } else {
      line.held += whole;
      Release(rank, line, out);
    }
    data.remove_prefix(last + 1);
  }
  if (data.empty()) return;
  if (line.held.empty()) ++unfinished_;
  line.held += data;
  line.grown = true;
  if (line.held.size() > kLongLineBytes) Release(rank, line, out);
}

void LineMerger::End(RankId rank, std::string* out) {
  const auto found = lines_.find(rank);
  if (found == lines_.end()) return;
  Release(rank, found->second, out);
  lines_.erase(found);
}

void LineMerger::EndAll(std::string* out) {
  while (!lines_.empty()) End(lines_.begin()->first, out);
}

void LineMerger::Tick(std::string* out) {
  for (auto& [rank, line] : lines_) {
    if (!line.held.empty() && !line.grown) Release(rank, line, out);
    line.grown = false;
  }
}

void LineMerger::Release(RankId rank, Line& line, std::string* out) {
  if (line.held.empty()) return;
  Emit(rank, line.held, out);
  line.held.clear();
  --unfinished_;
}

void LineMerger::Emit(RankId rank, std::string_view text, std::string* out) {
  if (!label_) {
    *out += text;
    return;
  }
  if (open_ && *open_ != rank) {
    *out += '\n';
    open_.reset();
  }
  const std::string label = std::format("[{}] ", rank);
  while (!text.empty()) {
    const auto newline = text.find('\n');
    if (!open_) *out += label;
    *out += text.substr(0, newline == std::string_view::npos ? newline : newline + 1);
    if (newline == std::string_view::npos) {
      open_ = rank;
      return;
    }
    open_.reset();
    text.remove_prefix(newline + 1);
  }
}

}  // namespace xmpi::launcher
