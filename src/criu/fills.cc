#include "criu/fills.h"

#include <format>
#include <utility>

namespace xmpi::criu {

Result<> Fills::Begin(const image::RankImage& image, std::shared_ptr<image::StoredPages> pages) {
  const image::Manifest& manifest = image.manifest;
  Drop(manifest.rank);
  Entry entry;
  XMPI_ASSIGN_OR_RETURN(entry.fill,
                        PageFill::Begin(image.directory, manifest.memory, std::move(pages)));
  XMPI_ASSIGN_OR_RETURN(entry.held, slot_->Hold(entry.fill->keeper()));
  fills_[manifest.rank] = std::move(entry);
  return {};
}

void Fills::Drop(RankId rank) {
  const auto entry = fills_.extract(rank);
  if (!entry.empty()) slot_->LetGo(entry.mapped().held);
}

void Fills::FillMemory(std::function<void(Result<>)> done) {
  done_ = std::move(done);
  failed_.reset();
  awaited_ = fills_.size();
  if (awaited_ == 0) return post_([done = std::move(done_)] { done({}); });
  for (const auto& [rank, entry] : fills_) {
    entry.fill->Fill([weak = weak_from_this(), post = post_, rank](Result<> filled) {
      post([weak, rank, filled] {
        if (const auto self = weak.lock()) self->OnFilled(rank, filled);
      });
    });
  }
}

// One that has failed stays: its rank waits for a page, which closing the descriptors would make
// zero.
void Fills::OnFilled(RankId rank, Result<> filled) {
  if (filled) {
    const FillProgress progress = fills_[rank].fill->progress();
    finished_.pages += progress.pages;
    finished_.total_pages += progress.total_pages;
    Drop(rank);
  } else if (!failed_) {
    failed_ = WithContext(std::format("cannot give rank {} its memory, for which it waits", rank),
                          filled.error());
  }
  if (--awaited_ > 0) return;
  const auto done = std::exchange(done_, nullptr);
  failed_ ? done(std::unexpected(*failed_)) : done({});
}

FillProgress Fills::progress() const {
  FillProgress progress = finished_;
  for (const auto& [rank, entry] : fills_) {
    const FillProgress one = entry.fill->progress();
    progress.pages += one.pages;
    progress.total_pages += one.total_pages;
  }
  return progress;
}

}  // namespace xmpi::criu
