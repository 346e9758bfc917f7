// The MPI program that quiesce_test moves through its scenarios: steps of ring exchange, allreduce
// and row sums, each with a result known in closed form, until the file named by $STOP_FILE
// appears. What it does besides is chosen by words in argv; the test gates steps by files.
//
//   bind        keep a split, a cartesian, a graph, a dist_graph and a dup of a sub-communicator
//   register    a persistent ring in XMPI_Register
//   listen      a listening TCP socket in XMPI_Register
//   pool        shift MPICH's handle pools before every make, so that a stale handle shows
//   slow=R,MS   rank R computes MS ms in every step
//   loose       ranks meet their neighbours only, so that they may be steps apart
//   gate=STEP   before the safe point of that step make the file gate.RANK and wait for `open`
//   gate_rank=R only rank R does
//   multiple    asks for MPI_THREAD_MULTIPLE, and a second thread exchanges in every step (with
//   bind) all_pools   makes an object of every kind that costs MPICH a cleanup entry, in each
//   session inside      calls XMPI_Quiesce inside make, which must be refused abort=CODE  rank 1
//   calls XMPI_Abort at step 3 mark=STEP   makes the file mark.RANK at the start of that step
//   breach=WHAT breaks the contract at the step of the gate, and puts it right after that call:
//               pending | persistent | idup | window | message | forgotten | type | session |
//               changed | row_message
//   thread      another thread calls XMPI_Quiesce at the step of the gate
//   rank=R      who does these two (default 1)
//   finalize    leaves the loop at the step of the gate and finalizes
//   linger      after XMPI_Finalize make the file finalized.RANK and wait for `stop`
//   misuse      calls what must be refused
//   print_env=V rank 0 prints the environment variable V at the end
//   steps=N     ends after N steps, without a stop file
// Files are in $RUN_DIR.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "xmpi.h"

namespace {

std::map<std::string, std::string> words;

bool Has(const char* word) { return words.contains(word); }
int Number(const char* word, int otherwise) {
  return Has(word) ? std::atoi(words[word].c_str()) : otherwise;
}

int rank, size;

#define REQUIRE(condition)                                                             \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      std::fprintf(stderr, "rank %d: %s:%d: not true: %s\n", rank, __FILE__, __LINE__, \
                   #condition);                                                        \
      XMPI_Abort(XMPI_COMM_WORLD, 3);                                                  \
    }                                                                                  \
  } while (false)

// Objects made and kept so that the next ones get other handles than in the last session.
void ShiftPools(int round) {
  for (int i = 0; i < round % 3 + 1; ++i) {
    MPI_Group group;
    MPI_Comm_group(XMPI_COMM_WORLD, &group);
    MPI_Info info;
    MPI_Info_create(&info);
  }
}

struct Bound {
  MPI_Comm world_copy = MPI_COMM_NULL;
  MPI_Comm row = MPI_COMM_NULL;       // split by parity
  MPI_Comm row_copy = MPI_COMM_NULL;  // dup of it: bound comm made from a bound comm
  MPI_Comm cart = MPI_COMM_NULL;
  MPI_Comm graph = MPI_COMM_NULL;
  MPI_Comm dist_graph = MPI_COMM_NULL;
  MPI_Comm some = MPI_COMM_NULL;  // all ranks but the last
  MPI_Errhandler errhandler = MPI_ERRHANDLER_NULL;
} bound;

void OnCommError(MPI_Comm*, int*, ...) {}

void MakeBound() {
  bound.world_copy = XMPI_COMM_WORLD;
  REQUIRE(XMPI_Comm_bind(&bound.world_copy) == MPI_SUCCESS);
  MPI_Comm_split(XMPI_COMM_WORLD, rank % 2, -rank, &bound.row);
  MPI_Comm_set_name(bound.row, "row");
  MPI_Comm_create_errhandler(OnCommError, &bound.errhandler);
  MPI_Comm_set_errhandler(bound.row, bound.errhandler);
  REQUIRE(XMPI_Comm_bind(&bound.row) == MPI_SUCCESS);
  MPI_Comm_dup(bound.row, &bound.row_copy);
  REQUIRE(XMPI_Comm_bind(&bound.row_copy) == MPI_SUCCESS);
  const int dims[] = {size, 1};
  const int periods[] = {1, 0};
  MPI_Cart_create(XMPI_COMM_WORLD, 2, dims, periods, 0, &bound.cart);
  REQUIRE(XMPI_Comm_bind(&bound.cart) == MPI_SUCCESS);
  std::vector<int> index, edges;
  for (int i = 0; i < size; ++i) {
    edges.push_back((i + 1) % size);
    index.push_back(i + 1);
  }
  MPI_Graph_create(XMPI_COMM_WORLD, size, index.data(), edges.data(), 0, &bound.graph);
  REQUIRE(XMPI_Comm_bind(&bound.graph) == MPI_SUCCESS);
  const int source = (rank + size - 1) % size, target = (rank + 1) % size;
  const int in_weight = 10 + source, out_weight = 10 + rank;
  MPI_Dist_graph_create_adjacent(XMPI_COMM_WORLD, 1, &source, &in_weight, 1, &target, &out_weight,
                                 MPI_INFO_NULL, 0, &bound.dist_graph);
  REQUIRE(XMPI_Comm_bind(&bound.dist_graph) == MPI_SUCCESS);
  MPI_Comm_split(XMPI_COMM_WORLD, rank == size - 1 ? MPI_UNDEFINED : 0, rank, &bound.some);
  REQUIRE(XMPI_Comm_bind(&bound.some) == MPI_SUCCESS);
}

int Sum(MPI_Comm comm, int value) {
  int sum = -1;
  MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm);
  return sum;
}

void CheckBound() {
  REQUIRE(bound.world_copy == XMPI_COMM_WORLD);
  int row_sum = 0, row_size = 0;
  for (int i = rank % 2; i < size; i += 2) row_sum += i, ++row_size;
  REQUIRE(Sum(bound.row, rank) == row_sum);
  REQUIRE(Sum(bound.row_copy, rank) == row_sum);
  int in_row = -1;
  MPI_Comm_rank(bound.row, &in_row);
  REQUIRE(in_row == row_size - 1 - rank / 2);  // the split reversed the order
  char name[MPI_MAX_OBJECT_NAME];
  int length;
  MPI_Comm_get_name(bound.row, name, &length);
  REQUIRE(std::string(name) == "row");
  MPI_Errhandler errhandler;
  MPI_Comm_get_errhandler(bound.row, &errhandler);
  REQUIRE(errhandler == bound.errhandler);
  MPI_Errhandler_free(&errhandler);

  int dims[2], periods[2], coordinates[2], left, right;
  MPI_Cart_get(bound.cart, 2, dims, periods, coordinates);
  REQUIRE(dims[0] == size && dims[1] == 1 && periods[0] == 1 && periods[1] == 0);
  REQUIRE(coordinates[0] == rank);
  MPI_Cart_shift(bound.cart, 0, 1, &left, &right);
  REQUIRE(left == (rank + size - 1) % size && right == (rank + 1) % size);
  int neighbor = -1;
  MPI_Graph_neighbors(bound.graph, rank, 1, &neighbor);
  REQUIRE(neighbor == (rank + 1) % size);
  int source, in_weight, target, out_weight;
  MPI_Dist_graph_neighbors(bound.dist_graph, 1, &source, &in_weight, 1, &target, &out_weight);
  REQUIRE(source == left && in_weight == 10 + left && target == right && out_weight == 10 + rank);
  if (rank != size - 1) REQUIRE(Sum(bound.some, 1) == size - 1);
  if (rank == size - 1) REQUIRE(bound.some == MPI_COMM_NULL);
}

struct Ring {
  MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  MPI_Datatype pair = MPI_DATATYPE_NULL;
  int out[4] = {}, in[4] = {};
  int made = 0, released = 0;
} ring;

int MakeRing(MPI_Comm world, void* state) {
  Ring* it = static_cast<Ring*>(state);
  if (Has("pool")) ShiftPools(it->made);
  if (Has("inside") && it->made > 0) REQUIRE(XMPI_Quiesce(nullptr) != MPI_SUCCESS);
  ++it->made;
  MPI_Type_vector(2, 1, 2, MPI_INT, &it->pair);  // elements 0 and 2
  MPI_Type_commit(&it->pair);
  MPI_Send_init(it->out, 1, it->pair, (rank + 1) % size, 77, world, &it->requests[0]);
  return MPI_Recv_init(it->in, 1, it->pair, (rank + size - 1) % size, 77, world, &it->requests[1]);
}

int ReleaseRing(void* state) {
  Ring* it = static_cast<Ring*>(state);
  ++it->released;
  MPI_Request_free(&it->requests[0]);
  MPI_Request_free(&it->requests[1]);
  return MPI_Type_free(&it->pair);
}

void UseRing(int step) {
  ring.out[0] = rank + step, ring.out[2] = rank * step;
  ring.in[0] = ring.in[1] = ring.in[2] = -1;
  MPI_Startall(2, ring.requests);
  MPI_Waitall(2, ring.requests, MPI_STATUSES_IGNORE);
  const int left = (rank + size - 1) % size;
  REQUIRE(ring.in[0] == left + step && ring.in[2] == left * step && ring.in[1] == -1);
}

// A blocking ring with a message that needs the peer's progress (rendezvous).
void Exchange(int step) {
  static std::vector<int> out(20000), in(20000);
  out.front() = rank, out.back() = step;
  MPI_Request requests[2];
  const int left = (rank + size - 1) % size;
  MPI_Irecv(in.data(), 20000, MPI_INT, left, step % 1000, XMPI_COMM_WORLD, &requests[0]);
  MPI_Isend(out.data(), 20000, MPI_INT, (rank + 1) % size, step % 1000, XMPI_COMM_WORLD,
            &requests[1]);
  int index;
  MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
  int done = 0;
  while (!done) MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
  REQUIRE(in.front() == left && in.back() == step);
}

void UseAllPools() {
  MPI_Op op;
  MPI_Op_create([](void*, void*, int*, MPI_Datatype*) {}, 1, &op);
  MPI_Op_free(&op);
  int keyval;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &keyval, nullptr);
  MPI_Comm_set_attr(XMPI_COMM_WORLD, keyval, nullptr);
  MPI_Comm_delete_attr(XMPI_COMM_WORLD, keyval);
  MPI_Comm_free_keyval(&keyval);
  MPI_Errhandler errhandler;
  MPI_Comm_create_errhandler(OnCommError, &errhandler);
  MPI_Errhandler_free(&errhandler);
  MPI_Win window;
  int value = 0;
  MPI_Win_create(&value, sizeof value, 1, MPI_INFO_NULL, XMPI_COMM_WORLD, &window);
  MPI_Win_free(&window);
}

// What breaks the contract at one call and is put right after it.
class Breach {
 public:
  explicit Breach(const std::string& what) : what_(what) {}

  void Begin() {
    const int peer = rank == 0 ? 1 : 0;
    if (what_ == "pending") {
      MPI_Irecv(&value_, 1, MPI_INT, rank, 5, XMPI_COMM_WORLD, &request_);
    } else if (what_ == "persistent") {
      MPI_Recv_init(&value_, 1, MPI_INT, peer, 5, XMPI_COMM_WORLD, &request_);
    } else if (what_ == "idup") {
      MPI_Comm_idup(MPI_COMM_SELF_OF_WORLD(), &comm_, &request_);
    } else if (what_ == "message") {
      MPI_Send(&value_, 1, MPI_INT, peer, 1234, XMPI_COMM_WORLD);
    } else if (what_ == "row_message") {
      MPI_Send(&value_, 1, MPI_INT, 1, 99, bound.row);
    } else if (what_ == "type") {
      MPI_Type_contiguous(3, MPI_INT, &type_);
    } else if (what_ == "session") {
      MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session_);
    } else if (what_ == "changed") {
      saved_ = bound.cart;
      bound.cart = MPI_COMM_NULL;
    }
  }

  // The collective ones, on all ranks.
  void BeginAll() {
    if (what_ == "window")
      MPI_Win_create(&value_, sizeof value_, sizeof value_, MPI_INFO_NULL, XMPI_COMM_WORLD,
                     &window_);
    if (what_ == "forgotten") {
      MPI_Comm_dup(XMPI_COMM_WORLD, &comm_);
      MPI_Comm_set_name(comm_, "lost and found");
    }
  }
  void EndAll(int culprit) {
    if (what_ == "window") MPI_Win_free(&window_);
    if (what_ == "forgotten") MPI_Comm_free(&comm_);
    // In a row the greater world rank has the smaller one: rank 2 sends as 0 to rank 0, which is 1.
    if (what_ == "row_message" && rank == 0)
      MPI_Recv(&value_, 1, MPI_INT, 0, 99, bound.row, MPI_STATUS_IGNORE);
    if (what_ == "message" && rank == (culprit == 0 ? 1 : 0))
      MPI_Recv(&value_, 1, MPI_INT, culprit, 1234, XMPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }

  void End() {
    if (what_ == "pending") {
      int sent = 9;
      MPI_Send(&sent, 1, MPI_INT, rank, 5, XMPI_COMM_WORLD);
      MPI_Wait(&request_, MPI_STATUS_IGNORE);
    } else if (what_ == "persistent") {
      MPI_Request_free(&request_);
    } else if (what_ == "idup") {
      MPI_Wait(&request_, MPI_STATUS_IGNORE);
      MPI_Comm_free(&comm_);
    } else if (what_ == "type") {
      MPI_Type_free(&type_);
    } else if (what_ == "session") {
      MPI_Session_finalize(&session_);
    } else if (what_ == "changed") {
      bound.cart = saved_;
    }
  }

 private:
  // One member only, so that the idup needs nobody else.
  MPI_Comm MPI_COMM_SELF_OF_WORLD() {
    static MPI_Comm self = [] {
      MPI_Group world, group;
      MPI_Comm comm;
      PMPI_Comm_group(XMPI_COMM_WORLD, &world);
      PMPI_Group_incl(world, 1, &rank, &group);
      PMPI_Comm_create_group(XMPI_COMM_WORLD, group, 3, &comm);
      return comm;
    }();
    return self;
  }

  std::string what_;
  int value_ = 0;
  MPI_Request request_ = MPI_REQUEST_NULL;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Comm saved_ = MPI_COMM_NULL;
  MPI_Session session_ = MPI_SESSION_NULL;
};

std::string RunFile(const std::string& name) {
  const char* folder = std::getenv("RUN_DIR");
  return std::string(folder == nullptr ? "." : folder) + "/" + name;
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Tells the test where this rank is ...
void Mark(const char* place) {
  std::fclose(std::fopen(RunFile(std::string(place) + "." + std::to_string(rank)).c_str(), "w"));
}

// ... and waits for its word.
void WaitAt(const char* place, const char* word) {
  Mark(place);
  while (!Exists(RunFile(word))) usleep(500);
}

void Misuse() {
  MPI_Comm never_bound = XMPI_COMM_WORLD;
  REQUIRE(XMPI_Init(nullptr, nullptr) != MPI_SUCCESS);
  REQUIRE(MPI_Init(nullptr, nullptr) != MPI_SUCCESS);
  REQUIRE(XMPI_Comm_unbind(&never_bound) != MPI_SUCCESS);
  REQUIRE(XMPI_Comm_bind(nullptr) != MPI_SUCCESS);
}

int Listen(MPI_Comm, void* fd) {
  const int made = socket(AF_INET, SOCK_STREAM, 0);
  *static_cast<int*>(fd) = made;
  return listen(made, 1) == 0 ? MPI_SUCCESS : MPI_ERR_OTHER;
}

int CloseListening(void* fd) {
  return close(*static_cast<int*>(fd)) == 0 ? MPI_SUCCESS : MPI_ERR_OTHER;
}

// Rank 0 decides, so that all leave the loop after the same step.
bool TimeToStop(int step) {
  if (Has("steps")) return step > Number("steps", 0);
  int stop = rank == 0 && Exists(RunFile("stop"));
  MPI_Bcast(&stop, 1, MPI_INT, 0, XMPI_COMM_WORLD);
  return stop != 0;
}

void Compute(int step) {
  if (Has("slow")) {
    int slow_rank = 0, ms = 0;
    std::sscanf(words["slow"].c_str(), "%d,%d", &slow_rank, &ms);
    if (rank == slow_rank) usleep(ms * 1000);
  }
  Exchange(step);
  if (!Has("loose")) REQUIRE(Sum(XMPI_COMM_WORLD, rank * step) == step * size * (size - 1) / 2);
  std::thread other;
  if (Has("multiple"))
    other = std::thread([] { REQUIRE(Sum(bound.cart, rank) == size * (size - 1) / 2); });
  if (Has("bind")) CheckBound();
  if (Has("register")) UseRing(step);
  if (other.joinable()) other.join();
}

void Pass(bool at, Breach* breach, int* rebuilds) {
  const bool culprit = rank == Number("rank", 1);
  if (at) breach->BeginAll();
  if (at && culprit) breach->Begin();
  if (at && culprit && Has("thread"))
    std::thread([] {
      if (XMPI_Quiesce(nullptr) == MPI_SUCCESS) std::fprintf(stderr, "the stray call passed\n");
    }).join();
  int rebuilt = -1;
  REQUIRE(XMPI_Quiesce(&rebuilt) == MPI_SUCCESS);
  REQUIRE(rebuilt == 0 || rebuilt == 1);
  *rebuilds += rebuilt;
  if (rebuilt && Has("pool")) ShiftPools(*rebuilds);
  if (rebuilt && Has("all_pools")) UseAllPools();
  if (at && culprit) breach->End();
  if (at) breach->EndAll(Number("rank", 1));
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto equals = word.find('=');
    words[word.substr(0, equals)] = equals == word.npos ? "" : word.substr(equals + 1);
  }
  if (Has("misuse")) REQUIRE(XMPI_Quiesce(nullptr) != MPI_SUCCESS);
  int provided = -1;
  const bool threads = Has("thread") || Has("multiple");
  if (XMPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
                       &provided) != MPI_SUCCESS)
    return 4;
  MPI_Comm_rank(XMPI_COMM_WORLD, &rank);
  MPI_Comm_size(XMPI_COMM_WORLD, &size);
  if (threads) REQUIRE(provided == MPI_THREAD_MULTIPLE);
  if (Has("misuse")) Misuse();
  if (Has("bind")) MakeBound();
  if (Has("register")) REQUIRE(XMPI_Register(MakeRing, ReleaseRing, &ring) == MPI_SUCCESS);

  int listening = -1;
  if (Has("listen")) REQUIRE(XMPI_Register(Listen, CloseListening, &listening) == MPI_SUCCESS);
  if (Has("all_pools")) UseAllPools();

  Breach breach(words["breach"]);
  const int gate = Number("gate", 0);
  int rebuilds = 0;
  int step = 1;
  for (; !TimeToStop(step); ++step) {
    if (step == Number("mark", 0)) Mark("mark");
    if (Has("abort") && step == 3 && rank == 1) XMPI_Abort(MPI_COMM_NULL, Number("abort", 1));
    Compute(step);
    const bool at = step == gate;
    if (at && rank == Number("gate_rank", rank)) WaitAt("gate", "open");
    if (at && Has("finalize")) break;
    Pass(at, &breach, &rebuilds);
  }
  if (Has("register")) REQUIRE(ring.made == rebuilds + 1 && ring.released == rebuilds);
  REQUIRE(XMPI_Finalize() == MPI_SUCCESS);
  if (Has("register")) REQUIRE(ring.released == ring.made);
  if (Has("misuse")) REQUIRE(XMPI_Finalize() != MPI_SUCCESS);
  if (Has("linger")) WaitAt("finalized", "stop");
  if (rank == 0 && Has("print_env")) {
    const char* value = std::getenv(words["print_env"].c_str());
    std::printf("%s=%s\n", words["print_env"].c_str(), value == nullptr ? "(unset)" : value);
  }
  if (rank == 0) std::printf("done steps=%d rebuilds=%d\n", step, rebuilds);
  return 0;
}
