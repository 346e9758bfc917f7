#include "os/slot_protocol.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <format>

#include "base/bytes.h"

namespace xmpi::os {
namespace {

constexpr std::size_t kMaxText = 2u << 20;  // the kernel's own limit on argv and environment
constexpr std::size_t kMaxStrings = 1u << 20;

void PutStrings(ByteWriter& out, const std::vector<std::string>& strings) {
  out.Put<std::uint32_t>(static_cast<std::uint32_t>(strings.size()));
  for (const std::string& string : strings) out.PutString(string);
}

std::vector<std::string> GetStrings(ByteReader& in) {
  std::vector<std::string> strings(in.GetCount(kMaxStrings, 4));
  for (std::string& string : strings) string = in.GetString(kMaxText);
  return strings;
}

}  // namespace

std::string Describe(SpawnStage stage, const SpawnRequest& request) {
  const std::string program = request.argv.empty() ? "" : request.argv.front();
  switch (stage) {
    case SpawnStage::kExec:
      return std::format("cannot run {}", program);
    case SpawnStage::kCwd:
      return std::format("cannot run {} in directory {}", program, request.cwd);
    case SpawnStage::kOpen:
      return std::format("cannot open a standard stream of {}", program);
    case SpawnStage::kCpus:
      return std::format("cannot bind {} to its cores", program);
    case SpawnStage::kTimeNamespace:
      return std::format("cannot make a time namespace for {}", program);
    case SpawnStage::kPidHint:
      return std::format("cannot choose PIDs for {}", program);
    case SpawnStage::kDescriptors:
      return std::format("cannot set up the descriptors of {}", program);
    case SpawnStage::kFork:
      return std::format("cannot fork for {}", program);
    case SpawnStage::kAdopt:
      return "no such process in the slot";
    case SpawnStage::kNone:
    case SpawnStage::kRequest:
      break;
  }
  return std::format("cannot start {}", program);
}

std::string EncodeEvent(const SlotEvent& event) {
  ByteWriter out;
  out.Put(static_cast<std::uint32_t>(event.kind));
  out.Put(event.id);
  out.Put(static_cast<std::uint32_t>(event.pid));
  out.Put(static_cast<std::uint32_t>(event.value));
  out.Put(static_cast<std::uint32_t>(event.stage));
  out.PutString(event.text);
  return out.Take();
}

Result<SlotEvent> DecodeEvent(std::string_view bytes) {
  ByteReader in(bytes);
  SlotEvent event;
  event.kind = static_cast<EventKind>(in.Get<std::uint32_t>());
  event.id = in.Get<std::uint32_t>();
  event.pid = static_cast<pid_t>(in.Get<std::uint32_t>());
  event.value = static_cast<std::int32_t>(in.Get<std::uint32_t>());
  event.stage = static_cast<SpawnStage>(in.Get<std::uint32_t>());
  event.text = in.GetString(kMaxSlotMessageBytes);
  if (!in.AtEnd()) return Fail(ErrorCode::kProtocol, "malformed event from the slot's init");
  return event;
}

std::string EncodeSpawn(const SpawnRequest& request) {
  ByteWriter out;
  PutStrings(out, request.argv);
  PutStrings(out, request.env);
  out.PutString(request.cwd);
  out.Put<std::uint32_t>(static_cast<std::uint32_t>(request.fds.size()));
  for (const SpawnFd& fd : request.fds) {
    out.Put(static_cast<std::uint32_t>(fd.target));
    out.Put(static_cast<std::uint32_t>(fd.fd >= 0 ? 1 : 0));
    out.Put(static_cast<std::uint32_t>(fd.open_flags));
    out.PutString(fd.path);
  }
  out.Put<std::uint32_t>(static_cast<std::uint32_t>(request.cpus.size()));
  for (int cpu : request.cpus) out.Put(static_cast<std::uint32_t>(cpu));
  out.Put(static_cast<std::uint8_t>(request.own_time_namespace));
  out.Put(static_cast<std::uint8_t>(request.session_leader));
  out.Put(static_cast<std::uint32_t>(request.after_pid));
  return out.Take();
}

Result<SpawnRequest> DecodeSpawn(std::string_view bytes) {
  ByteReader in(bytes);
  SpawnRequest request;
  request.argv = GetStrings(in);
  request.env = GetStrings(in);
  request.cwd = in.GetString(kMaxText);
  request.fds.resize(in.GetCount(kMaxSlotFds, 16));
  for (SpawnFd& fd : request.fds) {
    fd.target = static_cast<int>(in.Get<std::uint32_t>());
    fd.fd = in.Get<std::uint32_t>() != 0 ? 0 : -1;
    fd.open_flags = static_cast<int>(in.Get<std::uint32_t>());
    fd.path = in.GetString(kMaxText);
  }
  request.cpus.resize(in.GetCount(65536, 4));
  for (int& cpu : request.cpus) cpu = static_cast<int>(in.Get<std::uint32_t>());
  request.own_time_namespace = in.Get<std::uint8_t>() != 0;
  request.session_leader = in.Get<std::uint8_t>() != 0;
  request.after_pid = static_cast<pid_t>(in.Get<std::uint32_t>());
  if (!in.AtEnd() || request.argv.empty()) return Fail("malformed spawn request");
  return request;
}

Result<> SendMessage(int socket, std::string_view bytes, const std::vector<int>& fds, int flags) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  std::vector<char> control;
  if (!fds.empty()) {
    control.resize(CMSG_SPACE(sizeof(int) * fds.size()));
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  while (sendmsg(socket, &message, flags | MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return Fail(ErrorCode::kTimeout, "the slot's socket is full");
    return std::unexpected(ErrnoError("send to the slot"));
  }
  return {};
}

Result<Message> ReceiveMessage(int socket, int flags) {
  Message result;
  result.bytes.resize(kMaxSlotMessageBytes);
  iovec part{result.bytes.data(), result.bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 253)> control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t size;
  do {
    size = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && (errno == EAGAIN)) {
    result.would_block = true;
    return result;
  }
  if (size < 0 && errno != ECONNRESET) return std::unexpected(ErrnoError("receive from the slot"));
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::vector<int> fds(count);
    std::memcpy(fds.data(), CMSG_DATA(header), count * sizeof(int));
    for (int fd : fds) result.fds.emplace_back(fd);
  }
  result.closed = size <= 0;
  result.bytes.resize(size <= 0 ? 0 : static_cast<std::size_t>(size));
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return Fail(ErrorCode::kProtocol, "a message of the slot was cut");
  }
  return result;
}

}  // namespace xmpi::os
