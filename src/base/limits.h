// Every limit of XMPI in one place, each with its reason. A peer that goes past one has its
// connection closed and is named; a user who goes past one is told the limit and its name.
// Timeouts are a value that the programs carry around, so that tests can run with shorter ones.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace xmpi::limits {

// Links between launcher and proxies.

// The largest control message is a fence of the KVS: 4096 ranks with 4 KiB of addresses each,
// doubled.
inline constexpr std::size_t kControlMessageBytes = 32u << 20;
// What a link keeps for replay while it is down; more means that the peer stopped acknowledging.
inline constexpr std::size_t kControlBacklogBytes = 128u << 20;
// Small enough that a control message never waits behind more than one of them.
inline constexpr std::size_t kStdioMessageBytes = 64u << 10;
// The fields around the bytes of a stdio message, with room to grow.
inline constexpr std::size_t kStdioEnvelopeBytes = 1u << 10;
// Full speed on a 10 ms, 100 MB/s path, and the most output that waits in memory per slot.
inline constexpr std::size_t kStdioWindowBytes = 1u << 20;
// A sender that overruns the window by more than its reads in flight is broken.
inline constexpr std::size_t kStdioBacklogBytes = 16u << 20;
// The text of a refusal or of a link's orderly end.
inline constexpr std::size_t kReasonBytes = 1u << 10;

// Connections that have not proved that they know the job's secret. Each costs a descriptor and,
// once it has sent something, some 100 KiB; the handshake of a proxy takes a few milliseconds.
inline constexpr std::size_t kStrangers = 256;
// The same at an image port, where one peer is awaited.
inline constexpr std::size_t kImageStrangers = 64;

// Names that travel: `job/slot/role/migration.attempt` fits, and so does what a log line shows.
inline constexpr std::size_t kIdentityBytes = 128;
inline constexpr std::size_t kJobNameBytes = 64;

// Orders that wait for the migration under way: a job has fewer nodes to leave at once.
inline constexpr std::size_t kWaitingOrders = 64;

// What is kept of a remote shell's stderr to explain why it failed.
inline constexpr std::size_t kShellStderrBytes = 16u << 10;
inline constexpr std::size_t kShellLineBytes = 4u << 10;

// Patience with what is not a peer's link or a phase of a migration.

// An unfinished line of output is shown after one to two of these: before a person wonders.
inline constexpr std::chrono::milliseconds kUnfinishedLineTick{50};
// After a signal or a timeout nobody may be left to read what the ranks wrote.
inline constexpr std::chrono::seconds kReaderPatience{1};
// A second signal within this means: now.
inline constexpr std::chrono::seconds kSecondSignal{1};
// A connection that drops at the start is redialled within this, if anybody is left to redial.
inline constexpr std::chrono::seconds kRedialGrace{1};
// From a proxy's last word to the end of its remote shell.
inline constexpr std::chrono::seconds kShellGrace{2};
// How long a shell's stderr may stay open after its end: something behind it may hold it for ever.
inline constexpr std::chrono::milliseconds kStderrGrace{500};
// A slot's init says hello in milliseconds; past this something is wrong with the node.
inline constexpr std::chrono::seconds kSlotStart{10};
// A slot whose proxy leaves it ends by itself, at once; past this its init is killed.
inline constexpr std::chrono::seconds kSlotEnd{5};
// A page that has no place in its process: an event that tells why is on its way. Past this there
// is none.
inline constexpr std::chrono::seconds kPageHasPlace{10};
// criu's probe of the kernel, cold.
inline constexpr std::chrono::seconds kCriuCheck{30};
// What a rank holds for less than this while it runs is in no dump's way.
inline constexpr std::chrono::milliseconds kHoldingLasts{1000};
// The stop that a dump leaves behind may come just after criu's answer.
inline constexpr std::chrono::seconds kDumpSettles{5};
// One rank's dump or restore by criu; past it the rank stays where it is.
inline constexpr std::chrono::seconds kCriuWork{60};
// From the end of criu's work to the end of criu.
inline constexpr std::chrono::seconds kCriuEnd{5};
// Until the PIDs of copies that are to be made again are free.
inline constexpr std::chrono::seconds kPidsFree{5};
inline constexpr std::chrono::milliseconds kPidsFreePoll{1};
// Long enough to write a last line, short enough for whoever pressed Ctrl-C.
inline constexpr std::chrono::seconds kRankGrace{2};
// How long a proxy that leaves waits for the launcher to take the output, then to take the goodbye.
inline constexpr std::chrono::seconds kOutputDelivery{5};
inline constexpr std::chrono::milliseconds kOutputDeliveryPoll{1};
inline constexpr std::chrono::seconds kGoodbye{2};
// From a signal to the proxy to its leaving, whatever the launcher says.
inline constexpr std::chrono::seconds kSignalledLeave{4};
// A source says something on an image connection at least this often.
inline constexpr std::chrono::seconds kImagePulse{1};
// How fast the memory of running ranks is looked through for what has changed, and how politely:
// a tenth of a core.
inline constexpr std::uint64_t kPrecopyBytesPerSecond = 400u << 20;
inline constexpr int kPrecopyNice = 10;
// What a target says comes when it is done with the images; whether it is alive is the launcher's
// to tell.
inline constexpr std::chrono::hours kTargetAnswer{1};
// How long a node's facts may take: a cold probe of criu's is among them.
inline constexpr std::chrono::seconds kNodeFacts{20};
// A server that is out of descriptors tries again after this.
inline constexpr std::chrono::milliseconds kAcceptPause{100};
// xmpictl waits this long for a launcher to take its order.
inline constexpr std::chrono::seconds kLauncherAnswer{10};

}  // namespace xmpi::limits

namespace xmpi {

// X(name, default in ms): the table behind LinkTimeouts, so that options and docs can list it.
// The deadlines of the phases are core's (core/timeouts.h).
#define XMPI_LINK_TIMEOUTS(X)                                                              \
  /* A peer is pinged this often. */                                                       \
  X(ping_interval, 1000)                                                                   \
  /* A connection silent this long is dialled anew: TCP's own retries back off too far. */ \
  X(redial_silence, 3000)                                                                  \
  /* Unheard for this long, a proxy ends all it holds. */                                  \
  X(link_timeout, 10000)                                                                   \
  /* The launcher waits this much longer, so that what it gives up has already ended. */   \
  X(launcher_grace, 2000)                                                                  \
  /* A host with several addresses: the next is tried beside the first after this. */      \
  X(connect_stagger, 250)                                                                  \
  /* From accept, or from the start of a connect, to an authenticated connection. */       \
  X(handshake, 5000)                                                                       \
  /* The pause before a redial; doubled up to sixteen times this. */                       \
  X(redial_pause, 50)                                                                      \
  /* From the remote shell's start to the proxy's first connection. */                     \
  X(start, 30000)                                                                          \
  /* One read or write on an image connection that makes no progress. */                   \
  X(image_progress, 10000)

struct LinkTimeouts {
#define XMPI_TIMEOUT_MEMBER(name, default_ms) std::chrono::milliseconds name{default_ms};
  XMPI_LINK_TIMEOUTS(XMPI_TIMEOUT_MEMBER)
#undef XMPI_TIMEOUT_MEMBER

  // The member called `wanted`, or nullptr.
  std::chrono::milliseconds* Find(std::string_view wanted) {
#define XMPI_TIMEOUT_FIND(name, default_ms) \
  if (wanted == #name) return &name;
    XMPI_LINK_TIMEOUTS(XMPI_TIMEOUT_FIND)
#undef XMPI_TIMEOUT_FIND
    return nullptr;
  }
};

}  // namespace xmpi
