#include "criu/pagemap.h"

#include <algorithm>
#include <format>

#include "criu/image_file.h"
#include "image/pages.h"

namespace xmpi::criu {
namespace {

constexpr std::uint32_t kMagic[2] = {0x54564319, 0x56084025};
constexpr std::uint64_t kMostPages = UINT32_MAX;  // of one entry

constexpr int kPagesNumber = 1;  // of the first message
constexpr int kAddress = 1, kPages = 2, kFlags = 4;

}  // namespace

void Pagemap::Append(PagemapEntry entry) {
  if (!entries.empty()) {
    PagemapEntry& last = entries.back();
    if (last.flags == entry.flags && last.pages + entry.pages <= kMostPages &&
        last.address + last.pages * image::kPageBytes == entry.address) {
      last.pages += entry.pages;
      return;
    }
  }
  entries.push_back(entry);
}

std::string Encode(const Pagemap& pagemap) {
  std::string image(reinterpret_cast<const char*>(kMagic), sizeof kMagic);
  UnknownFieldSet head;
  head.AddVarint(kPagesNumber, pagemap.pages_number);
  AppendMessage(head, &image);
  for (const PagemapEntry& entry : pagemap.entries) {
    UnknownFieldSet fields;
    fields.AddVarint(kAddress, entry.address);
    fields.AddVarint(kPages, entry.pages);
    fields.AddVarint(kFlags, entry.flags);
    AppendMessage(fields, &image);
  }
  return image;
}

Result<Pagemap> DecodePagemap(std::string_view image, const char* name) {
  XMPI_ASSIGN_OR_RETURN(const std::vector<std::string_view> messages, Messages(image, name));
  if (!image.starts_with({reinterpret_cast<const char*>(kMagic), sizeof kMagic}) ||
      messages.empty())
    return Fail(std::format("{} of CRIU is not a pagemap", name));
  Pagemap pagemap;
  for (const std::string_view message : messages) {
    UnknownFieldSet fields;
    XMPI_RETURN_IF_ERROR(Parse(message, name, &fields));
    if (message.data() == messages.front().data()) {
      pagemap.pages_number = static_cast<std::uint32_t>(Number(&fields, kPagesNumber));
    } else {
      pagemap.entries.push_back({Number(&fields, kAddress), Number(&fields, kPages),
                                 static_cast<std::uint32_t>(Number(&fields, kFlags))});
    }
  }
  return pagemap;
}

std::string PagesName(std::uint32_t number) { return std::format("pages-{}.img", number); }
std::string PagemapName(std::uint64_t task) { return std::format("pagemap-{}.img", task); }
std::string SharedPagemapName(std::uint64_t mapping) {
  return std::format("pagemap-shmem-{}.img", mapping);
}

}  // namespace xmpi::criu
