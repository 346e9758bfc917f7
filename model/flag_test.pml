/* The paper's own safe point, as a contrast: the handler sets a flag, each rank tests its own flag
 * once a step, and a rank that sees it waits in a barrier for the others. The signals of one
 * migration reach the ranks at different times, so one rank may test before its signal and its
 * neighbour after: the one waits in the barrier, the other for the halo that never comes. Spin must
 * find that (an invalid end state); the test fails when it does not.
 */
#define RANKS 3
#define STEPS 3

bool flag[RANKS], waiting[RANKS];
byte sent[RANKS];

#define LEFT ((r + RANKS - 1) % RANKS)
#define RIGHT ((r + 1) % RANKS)

proctype Rank(byte r) {
  do
  :: sent[r] < STEPS ->
     sent[r]++;
     (sent[LEFT] >= sent[r] && sent[RIGHT] >= sent[r]); /* the halos of this step are in */
     if
     :: flag[r] ->
        waiting[r] = true;
        (waiting[0] && waiting[1] && waiting[2]); /* the barrier before the session is closed */
        break
     :: else
     fi
  :: else -> break
  od
}

/* Early enough for every rank to see it before its last step. */
proctype Proxy(byte r) { (sent[r] < STEPS) -> flag[r] = true }

init {
  atomic {
    byte n = 0;
    do
    :: n < RANKS -> run Rank(n); run Proxy(n); n++
    :: else -> break
    od
  }
}
