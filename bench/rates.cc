// rates: how fast this machine does the parts of a move, each by itself, in bytes per second.
//
//   rates pass THREADS MIB          read so many MIB of each of THREADS processes, hash every page
//   rates seal                      AES-256-GCM over records of TLS's size, on one core
//   rates receive PORT [tls]        what one connection brings, from its first byte to its end
//   rates send HOST PORT SECONDS [tls]
//
// All but `send` write one JSON object. No secret is in here: the key of `tls` is a fixed one.
#include <fcntl.h>
#include <netdb.h>
#include <openssl/evp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <format>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/fd.h"
#include "os/key.h"
#include "os/net.h"
#include "os/tls_socket.h"

namespace xmpi::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kChunkBytes = 1 << 20;
constexpr std::size_t kRecordBytes = 16 * 1024;
constexpr int kRepetitions = 5;
constexpr char kIdentity[] = "rates/0/image/0.0";
constexpr os::TlsSocket::Deadlines kDeadlines{seconds(20), seconds(20)};

double SecondsSince(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

double MedianRate(const std::function<std::size_t()>& work) {
  std::vector<double> rates;
  work();  // a warm-up
  while (rates.size() < kRepetitions) {
    const auto began = Clock::now();
    const std::size_t bytes = work();
    rates.push_back(static_cast<double>(bytes) / SecondsSince(began));
  }
  std::ranges::nth_element(rates, rates.begin() + kRepetitions / 2);
  return rates[kRepetitions / 2];
}

void Print(std::string_view name, double bytes_per_s) {
  std::puts(std::format("{{\"{}_bytes_per_s\": {:.0f}}}", name, bytes_per_s).c_str());
}

// ---- pass

// A process with memory of its own at `address`, which ends with this one.
struct Holder {
  pid_t pid = 0;
  std::uint64_t address = 0;
};

[[noreturn]] void Hold(std::size_t bytes, int ready) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto* const words = static_cast<std::uint64_t*>(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  XMPI_CHECK(words != MAP_FAILED);
  for (std::size_t i = 0; i < bytes / 8; ++i) words[i] = i * 0x9e3779b97f4a7c15u;
  const auto address = reinterpret_cast<std::uint64_t>(words);
  XMPI_CHECK(::write(ready, &address, sizeof address) == sizeof address);
  for (;;) ::pause();
}

Holder StartHolder(std::size_t bytes) {
  int ends[2];
  XMPI_CHECK(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd ready(ends[0]), say(ends[1]);
  Holder holder{.pid = ::fork()};
  XMPI_CHECK(holder.pid >= 0);
  if (holder.pid == 0) Hold(bytes, say.get());
  XMPI_CHECK(::read(ready.get(), &holder.address, 8) == 8);
  return holder;
}

void HashMemory(const Holder& holder, std::size_t bytes) {
  const Fd memory(::open(std::format("/proc/{}/mem", holder.pid).c_str(), O_RDONLY | O_CLOEXEC));
  std::vector<std::byte> chunk(kChunkBytes);
  volatile std::uint64_t sum = 0;
  for (std::size_t at = 0; at < bytes; at += kChunkBytes) {
    const auto offset = static_cast<off_t>(holder.address + at);
    XMPI_CHECK(::pread(memory.get(), chunk.data(), kChunkBytes, offset) == kChunkBytes);
    for (std::size_t page = 0; page < kChunkBytes; page += kPageBytes)
      sum = sum ^ XXH3_128bits(chunk.data() + page, kPageBytes).low64;
  }
}

Result<> Pass(std::size_t threads, std::size_t mib) {
  const std::size_t bytes = mib << 20;
  std::vector<Holder> holders;
  while (holders.size() < threads) holders.push_back(StartHolder(bytes));
  Print("pass", MedianRate([&] {
          std::vector<std::jthread> readers;
          for (const Holder& holder : holders)
            readers.emplace_back([&holder, bytes] { HashMemory(holder, bytes); });
          readers.clear();  // joins
          return threads * bytes;
        }));
  for (const Holder& holder : holders) ::kill(holder.pid, SIGKILL);
  return {};
}

// ---- seal

Result<> Seal() {
  const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> cipher(EVP_CIPHER_CTX_new(),
                                                                               EVP_CIPHER_CTX_free);
  std::array<unsigned char, 32> key{1};
  std::array<unsigned char, 12> nonce{2};
  std::array<unsigned char, 16> tag{};
  std::vector<unsigned char> plain(kRecordBytes), sealed(kRecordBytes);
  XMPI_CHECK(EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, key.data(), nullptr));
  Print("seal", MedianRate([&]() -> std::size_t {
          constexpr std::size_t kRecords = 64 * 1024;
          int size = 0;
          for (std::size_t i = 0; i < kRecords; ++i) {
            std::memcpy(nonce.data(), &i, sizeof i);
            EVP_EncryptInit_ex(cipher.get(), nullptr, nullptr, nullptr, nonce.data());
            EVP_EncryptUpdate(cipher.get(), sealed.data(), &size, plain.data(), kRecordBytes);
            EVP_EncryptFinal_ex(cipher.get(), sealed.data(), &size);
            EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, 16, tag.data());
          }
          return kRecords * kRecordBytes;
        }));
  return {};
}

// ---- receive and send

os::Secret Key() { return os::Secret(os::Secret::Bytes{3}); }

// Bytes that came, 0 at the end.
using ReadSome = std::function<Result<std::size_t>(std::span<std::byte>)>;
using WriteAll = std::function<Result<>(std::span<const std::byte>)>;

Result<> Measure(const ReadSome& read) {
  std::vector<std::byte> buffer(kChunkBytes);
  XMPI_ASSIGN_OR_RETURN(std::size_t size, read(buffer));
  const auto began = Clock::now();
  std::size_t bytes = 0;
  while (size > 0) {
    XMPI_ASSIGN_OR_RETURN(size, read(buffer));
    bytes += size;
  }
  Print("link", static_cast<double>(bytes) / SecondsSince(began));
  return {};
}

Result<> Feed(seconds duration, const WriteAll& write) {
  const std::vector<std::byte> buffer(kChunkBytes, std::byte{0x5a});
  for (const auto end = Clock::now() + duration; Clock::now() < end;)
    XMPI_RETURN_IF_ERROR(write(buffer));
  return {};
}

Result<Fd> AcceptOne(std::uint16_t port) {
  XMPI_ASSIGN_OR_RETURN(const os::Listener listener, os::Listen("", {port, port}));
  pollfd ready{listener.socket.get(), POLLIN, 0};
  if (::poll(&ready, 1, 20'000) != 1) return Fail("nobody connects");
  Fd socket(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) return std::unexpected(ErrnoError("accept"));
  return socket;
}

Result<> Receive(std::uint16_t port, bool tls) {
  XMPI_ASSIGN_OR_RETURN(Fd socket, AcceptOne(port));
  if (!tls)
    return Measure([&](std::span<std::byte> bytes) -> Result<std::size_t> {
      const ssize_t size = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
      if (size < 0) return std::unexpected(ErrnoError("recv"));
      return static_cast<std::size_t>(size);
    });
  XMPI_ASSIGN_OR_RETURN(const os::TlsContext context,
                        os::TlsContext::Server([](auto) { return std::optional(Key()); }));
  XMPI_ASSIGN_OR_RETURN(os::TlsSocket sealed,
                        os::TlsSocket::Accept(context, std::move(socket), kDeadlines));
  return Measure([&](std::span<std::byte> bytes) { return sealed.Read(bytes); });
}

// Until somebody listens there.
Result<Fd> Dial(const char* host, const char* port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = ::getaddrinfo(host, port, &hints, &found); code != 0)
    return Fail(std::format("{}: {}", host, ::gai_strerror(code)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> address(found, ::freeaddrinfo);
  for (const auto deadline = Clock::now() + seconds(20); Clock::now() < deadline;) {
    Fd socket(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), address->ai_addr, address->ai_addrlen) == 0) return socket;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return std::unexpected(ErrnoError("connect"));
}

Result<> Send(const char* host, const char* port, seconds duration, bool tls) {
  XMPI_ASSIGN_OR_RETURN(Fd socket, Dial(host, port));
  if (!tls)
    return Feed(duration, [&](std::span<const std::byte> bytes) -> Result<> {
      while (!bytes.empty()) {
        const ssize_t size = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (size < 0) return std::unexpected(ErrnoError("send"));
        bytes = bytes.subspan(static_cast<std::size_t>(size));
      }
      return {};
    });
  XMPI_ASSIGN_OR_RETURN(const os::TlsContext context, os::TlsContext::Client(kIdentity, Key()));
  XMPI_ASSIGN_OR_RETURN(os::TlsSocket sealed,
                        os::TlsSocket::Connect(context, std::move(socket), kDeadlines));
  XMPI_RETURN_IF_ERROR(
      Feed(duration, [&](std::span<const std::byte> bytes) { return sealed.Write(bytes); }));
  return sealed.Finish();
}

Result<> Run(std::span<char* const> words) {
  const std::string_view what = words.empty() ? "" : words[0];
  const bool tls = words.size() > 1 && std::string_view(words.back()) == "tls";
  const std::size_t count = words.size() - (tls ? 1 : 0);
  if (what == "pass" && count == 3) return Pass(std::stoul(words[1]), std::stoul(words[2]));
  if (what == "seal" && count == 1) return Seal();
  if (what == "receive" && count == 2)
    return Receive(static_cast<std::uint16_t>(std::stoul(words[1])), tls);
  if (what == "send" && count == 4)
    return Send(words[1], words[2], seconds(std::stoul(words[3])), tls);
  return Fail("see the top of bench/rates.cc for what it takes");
}

}  // namespace
}  // namespace xmpi::bench

int main(int argc, char** argv) {
  const xmpi::Result<> done =
      xmpi::bench::Run(std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
  if (done) return 0;
  std::fprintf(stderr, "rates: %s\n", done.error().message.c_str());
  return 1;
}
