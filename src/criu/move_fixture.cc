#include "criu/move_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <format>
#include <thread>

#include "image/assembler.h"
#include "image/directory_storage.h"
#include "image/source.h"
#include "os/namespaces.h"

namespace xmpi::criu {
namespace {

using std::chrono::seconds;
constexpr seconds kDeadline{60};
constexpr image::StreamId kStream{.slot = 1, .epoch = 1, .migration = 1, .attempt = 1};

void SocketPair(int type, Fd* ours, Fd* ranks) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends), 0);
  *ours = Fd(ends[0]);
  *ranks = Fd(ends[1]);
}

void Pipe(Fd* read_end, Fd* write_end) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  *read_end = Fd(ends[0]);
  *write_end = Fd(ends[1]);
}

image::WriteAll Writer(int fd) {
  return [fd](std::span<const std::byte> bytes) -> Result<> {
    while (!bytes.empty()) {
      const ssize_t size = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (size <= 0) return std::unexpected(ErrnoError("send"));
      bytes = bytes.subspan(static_cast<std::size_t>(size));
    }
    return {};
  };
}

image::ReadAll Reader(int fd) {
  return [fd](std::span<std::byte> bytes) -> Result<> {
    while (!bytes.empty()) {
      const ssize_t size = recv(fd, bytes.data(), bytes.size(), 0);
      if (size <= 0) return Fail(ErrorCode::kUnreachable, "closed");
      bytes = bytes.subspan(static_cast<std::size_t>(size));
    }
    return {};
  };
}

Result<> SendAll(int fd, image::RankImage* image) {
  XMPI_RETURN_IF_ERROR(image::SendBegin(Writer(fd), {.stream = kStream}));
  XMPI_ASSIGN_OR_RETURN(image::Holdings held, image::ReceiveHoldings(Reader(fd)));
  XMPI_RETURN_IF_ERROR(image::SendImage(Writer(fd), image, held[image->manifest.rank], nullptr));
  XMPI_RETURN_IF_ERROR(image::SendEnd(Writer(fd)));
  return image::ReceiveVerdict(Reader(fd));
}

}  // namespace

void HeldPages::Take(const image::TaskMemory& task, image::PageSource& from) {
  const std::lock_guard lock(mutex_);
  for (const image::PageRun& run : task.runs) {
    for (std::uint64_t i = 0; i < run.pages; ++i) {
      const std::uint64_t address = run.address + i * image::kPageBytes;
      const std::uint64_t at = address % image::kRegionBytes;
      Region& region = regions_[{task.pid, address - at}];
      region.bytes.resize(image::kRegionBytes);
      region.kinds.resize(image::kRegionBytes / image::kPageBytes, Kind::kAbsent);
      const std::span page = std::span(region.bytes).subspan(at, image::kPageBytes);
      const auto size = from.Read(task.pid, address, page);
      ASSERT_TRUE(size) << size.error().message;
      ASSERT_EQ(*size, image::kPageBytes);
      const bool zero = std::ranges::all_of(page, [](std::byte b) { return b == std::byte{0}; });
      region.kinds[at / image::kPageBytes] = zero ? Kind::kZero : Kind::kData;
    }
  }
}

std::uint64_t HeldPages::size() const {
  const std::lock_guard lock(mutex_);
  std::ptrdiff_t size = 0;
  for (const auto& [key, region] : regions_)
    size += std::ssize(region.kinds) - std::ranges::count(region.kinds, Kind::kAbsent);
  return static_cast<std::uint64_t>(size);
}

Result<std::size_t> HeldPages::Read(pid_t pid, std::uint64_t address, std::span<std::byte> out) {
  std::size_t done = 0;
  for (; done < out.size(); done += image::kPageBytes) {
    const Found found = Find(pid, address + done, 1);
    if (found.kind == Kind::kAbsent) break;
    const std::span page = out.subspan(done, image::kPageBytes);
    std::ranges::fill(page, std::byte{0});
    if (found.data != nullptr) std::copy_n(found.data, image::kPageBytes, page.begin());
  }
  return done;
}

HeldPages::Found HeldPages::Find(pid_t pid, std::uint64_t address, std::uint64_t most) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t at = address % image::kRegionBytes;
  const auto region = regions_.find({pid, address - at});
  if (region == regions_.end()) return {Kind::kAbsent, 1, nullptr};
  const auto& kinds = region->second.kinds;
  const std::size_t first = at / image::kPageBytes;
  Found found{kinds[first], 1, nullptr};
  while (found.pages < most && first + found.pages < kinds.size() &&
         kinds[first + found.pages] == found.kind)
    ++found.pages;
  if (found.kind == Kind::kData) found.data = region->second.bytes.data() + at;
  return found;
}

void HeldPages::Release(pid_t pid, image::PageRun run) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t at = run.address % image::kRegionBytes;
  const auto region = regions_.find({pid, run.address - at});
  if (region == regions_.end()) return;
  auto& kinds = region->second.kinds;
  std::fill_n(kinds.begin() + static_cast<std::ptrdiff_t>(at / image::kPageBytes), run.pages,
              Kind::kAbsent);
  if (std::ranges::count(kinds, Kind::kAbsent) == std::ssize(kinds)) regions_.erase(region);
}

Mailbox::Mailbox() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Post Mailbox::post() {
  return [this](std::function<void()> closure) {
    const std::lock_guard lock(mutex_);
    closures_.push_back(std::move(closure));
    eventfd_write(wake_.get(), 1);
  };
}

void Mailbox::Run() {
  eventfd_t count;
  eventfd_read(wake_.get(), &count);
  std::deque<std::function<void()>> closures;
  {
    const std::lock_guard lock(mutex_);
    closures.swap(closures_);
  }
  for (const auto& closure : closures) closure();
}

Wires Wires::Make() {
  Wires wires;
  SocketPair(SOCK_SEQPACKET, &wires.control, &wires.rank_control);
  SocketPair(SOCK_STREAM, &wires.pmi, &wires.rank_pmi);
  Pipe(&wires.rank_input, &wires.input);
  Pipe(&wires.output, &wires.rank_output);
  Pipe(&wires.error, &wires.rank_error);
  for (const NewTie& tie : wires.NewTies()) {
    struct stat info{};
    EXPECT_EQ(fstat(tie.fd, &info), 0);
    wires.ties.push_back({tie.kind, info.st_ino});
  }
  return wires;
}

std::vector<NewTie> Wires::NewTies() const {
  using image::TieKind;
  return {{TieKind::kControl, rank_control.get()},
          {TieKind::kPmi, rank_pmi.get()},
          {TieKind::kStdin, rank_input.get()},
          {TieKind::kStdout, rank_output.get()},
          {TieKind::kStderr, rank_error.get()}};
}

std::vector<Tie> Wires::Ties() const { return ties; }

std::vector<os::SpawnFd> Wires::SpawnFds() const {
  return {{.target = 7, .fd = rank_control.get()},
          {.target = 5, .fd = rank_pmi.get()},
          {.target = 0, .fd = rank_input.get()},
          {.target = 1, .fd = rank_output.get()},
          {.target = 2, .fd = rank_error.get()}};
}

void Wires::CloseRankEnds() {
  for (Fd* fd : {&rank_control, &rank_pmi, &rank_input, &rank_output, &rank_error}) fd->Close();
}

std::string Wires::Ask(const std::string& question) const {
  if (send(control.get(), question.data(), question.size(), MSG_NOSIGNAL) < 0) {
    return std::string("(cannot ask: ") + std::strerror(errno) + ")";
  }
  pollfd wait{control.get(), POLLIN, 0};
  if (poll(&wait, 1, 60'000) != 1) return "(no answer)";
  std::array<char, 8192> buffer;
  const ssize_t size = recv(control.get(), buffer.data(), buffer.size(), 0);
  return size > 0 ? std::string(buffer.data(), static_cast<std::size_t>(size)) : "(closed)";
}

std::string Wires::ReadOutput(std::size_t size) const {
  std::string text(size, '\0');
  for (std::size_t at = 0; at < size;) {
    pollfd wait{output.get(), POLLIN, 0};
    const ssize_t got =
        poll(&wait, 1, 60'000) == 1 ? read(output.get(), text.data() + at, size - at) : -1;
    if (got <= 0) return text.substr(0, at) + "(no more)";
    at += static_cast<std::size_t>(got);
  }
  return text;
}

void MoveTest::SetUp() {
  if (geteuid() != 0) GTEST_SKIP() << "CRIU needs privilege here";
}

std::unique_ptr<MoveTest::Place> MoveTest::MakePlace(CriuCheckpointer::Options options) {
  auto place = std::make_unique<Place>();
  place->slot = std::move(os::Slot::Start().value());
  EXPECT_TRUE(place->slot->has_namespaces());
  Place* raw = place.get();
  place->slot->set_on_exit([raw](os::SlotExit exit) { raw->exits[exit.pid] = exit.status; });
  place->checkpointer =
      std::make_unique<CriuCheckpointer>(place->slot.get(), mailbox_.post(), std::move(options));
  places_.emplace_back(raw, place->alive);
  return place;
}

std::unique_ptr<MoveTest::Place> MoveTest::MakePlaceWithClock(const char* offsets) {
  const Fd own = std::move(os::EnterChildTimeNamespace().value());
  const Fd file(open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC));
  EXPECT_GT(write(file.get(), offsets, std::strlen(offsets)), 0) << std::strerror(errno);
  auto place = MakePlace();  // its processes are forked into the new namespace
  EXPECT_TRUE(os::LeaveChildTimeNamespace(own));
  return place;
}

Result<Preflight> MoveTest::Check(Place& place) {
  Result<Preflight> result = Fail("no answer");
  bool done = false;
  place.checkpointer->Check([&](Result<Preflight> preflight) {
    result = std::move(preflight);
    done = true;
  });
  Until([&] { return done; });
  return result;
}

MoveTest::Rank MoveTest::Start(Place& place, int mebibytes) {
  Rank rank{.wires = Wires::Make()};
  os::SpawnRequest request;
  request.argv = {XMPI_PARKED_RANK, std::to_string(mebibytes)};
  request.own_time_namespace = true;
  request.fds = rank.wires.SpawnFds();
  bool answered = false;
  place.slot->Spawn(request, [&](Result<os::Spawned> spawned) {
    EXPECT_TRUE(spawned) << spawned.error().message;
    answered = true;
    rank.pid = spawned ? spawned->pid : 0;
    rank.host_pid = spawned ? spawned->host_pid : 0;
  });
  Until([&] { return answered; });
  rank.wires.CloseRankEnds();
  return rank;
}

DumpDone MoveTest::Dump(Place& place, const Rank& rank) {
  DumpDone result{.image = Fail("no answer"), .log = {}};
  bool done = false;
  DumpRequest request{.rank = 4, .pid = rank.pid, .ties = rank.wires.Ties()};
  place.checkpointer->Dump(std::move(request), [&](DumpDone dump) {
    result = std::move(dump);
    done = true;
  });
  Until([&] { return done; });
  return result;
}

std::vector<DumpDone> MoveTest::DumpAll(const std::vector<Place*>& places,
                                        const std::vector<Rank>& ranks) {
  std::vector<DumpDone> results(ranks.size());
  std::size_t done = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    DumpRequest request{
        .rank = static_cast<RankId>(i), .pid = ranks[i].pid, .ties = ranks[i].wires.Ties()};
    places[i]->checkpointer->Dump(std::move(request), [&, i](DumpDone dump) {
      results[i] = std::move(dump);
      ++done;
    });
  }
  Until([&] { return done == ranks.size(); });
  return results;
}

MoveTest::Rank MoveTest::Move(Place& source, Rank rank, Place& target) {
  DumpDone dump = Dump(source, rank);
  EXPECT_TRUE(dump.image) << dump.image.error().message << "\n" << dump.log;
  if (!dump.image) return rank;
  Rank copy{.wires = Wires::Make()};
  RestoreDone restore = Restore(target, Transfer(std::move(*dump.image)), copy.wires);
  copy.wires.CloseRankEnds();
  EXPECT_TRUE(restore.pid) << restore.pid.error().message << "\n" << restore.log;
  copy.pid = restore.pid.value_or(0);
  bool adopted = false;
  target.slot->Adopt(copy.pid, [&](Result<os::Spawned> spawned) {
    EXPECT_TRUE(spawned) << spawned.error().message;
    copy.host_pid = spawned ? spawned->host_pid : 0;
    adopted = true;
  });
  Until([&] { return adopted; });
  EXPECT_TRUE(source.checkpointer->Kill(rank.pid));
  Until([&] { return source.exits.contains(rank.pid); });
  const Result<> filled = FillMemory(target);
  EXPECT_TRUE(filled) << filled.error().message;
  return copy;
}

image::RankImage MoveTest::Transfer(image::RankImage image) {
  Fd source, target;
  SocketPair(SOCK_STREAM, &source, &target);
  image::DirectoryStorage storage([](RankId) { return os::MakeMemoryDirectory(0); });
  const RankId rank = image.manifest.rank;
  image::Assembler assembler(&storage, {rank}, 1u << 30);
  // The memory takes a shorter way here.
  std::vector<image::TaskMemory> memory = std::exchange(image.manifest.memory, {});
  std::jthread sender([&] {
    const Result<> sent = SendAll(source.get(), &image);
    EXPECT_TRUE(sent) << sent.error().message;
  });
  EXPECT_TRUE(image::ReceiveBegin(Reader(target.get()), Writer(target.get()), kStream));
  const Result<> received =
      image::ReceiveImages(Reader(target.get()), Writer(target.get()), &assembler);
  EXPECT_TRUE(received) << received.error().message;
  if (!assembler.complete()) return {};
  image::RankImage result{std::move(storage.Open(rank).value()), assembler.ManifestOf(rank)};
  image.manifest.memory = std::move(memory);
  result.manifest.memory = image.manifest.memory;
  result.pages = HeldOf(image);
  return result;
}

std::shared_ptr<HeldPages> MoveTest::HeldOf(const image::RankImage& image) {
  if (auto held = std::dynamic_pointer_cast<HeldPages>(image.pages)) return held;
  auto held = std::make_shared<HeldPages>();
  for (const image::TaskMemory& task : image.manifest.memory) held->Take(task, *image.pages);
  return held;
}

Result<> MoveTest::FillMemory(Place& place) {
  Result<> result = Fail("no answer");
  bool done = false;
  place.checkpointer->FillMemory([&](Result<> filled) {
    result = std::move(filled);
    done = true;
  });
  Until([&] { return done; });
  return result;
}

RestoreDone MoveTest::Restore(Place& place, image::RankImage image, const Wires& wires) {
  RestoreDone result{.pid = Fail("no answer"), .image = {}, .log = {}};
  bool done = false;
  if (!image.manifest.memory.empty()) image.pages = HeldOf(image);
  auto held = std::dynamic_pointer_cast<HeldPages>(image.pages);
  RestoreRequest request{.image = std::move(image),
                         .pages = std::move(held),
                         .ties = wires.NewTies(),
                         .reserved_pids = {}};
  place.checkpointer->Restore(std::move(request), [&](RestoreDone restore) {
    result = std::move(restore);
    done = true;
  });
  Until([&] { return done; });
  return result;
}

void MoveTest::Until(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (!holds()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "nothing happened in time";
    std::vector<pollfd> waits{{mailbox_.fd(), POLLIN, 0}};
    std::erase_if(places_, [](const auto& entry) { return !*entry.second; });
    for (const auto& [place, alive] : places_) waits.push_back({place->slot->fd(), POLLIN, 0});
    poll(waits.data(), waits.size(), 1000);
    mailbox_.Run();
    for (const auto& [place, alive] : places_) place->slot->Dispatch();
  }
}

std::string Field(const std::string& state, const std::string& key) {
  const std::size_t at = state.find(" " + key + "=");
  const std::size_t from = state.starts_with(key + "=") ? key.size() + 1
                           : at == std::string::npos    ? state.size()
                                                        : at + key.size() + 2;
  return state.substr(from, state.find(' ', from) - from);
}

void ExpectSound(const std::string& state) {
  for (const char* key :
       {"memory", "shared", "helper_memory", "helper_answers", "time_goes_on", "deleted_file"}) {
    EXPECT_EQ(Field(state, key), "true") << key << " in: " << state;
  }
}

}  // namespace xmpi::criu
