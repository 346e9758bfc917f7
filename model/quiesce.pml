/* The quiesce (docs/architecture.md, "The seven phases") with three ranks that exchange halos with their neighbours,
 * signal handlers that interrupt anywhere, and a launcher that may give up a migration in any phase
 * before teardown (not the last one, so that a hang in it shows), or meet a refusal or a rank that
 * finalizes. The names are those of the C++: On() is the table of src/rank/quiesce_state.cc, Slow()
 * is SafePoint::Pass with its parts.
 *
 * A word may be read any time after it was sent: sending to all ranks is one step, and whether a
 * rank finds its socket empty is open even when something was sent.
 *
 * Spin checks that nobody hangs (no invalid end state), that no rank goes past stop_call, that all
 * park in the same call, that a barrier is entered by all or by none, and that nothing is cancelled
 * after teardown. Each of these switches takes one rule away, and spin must then find a fault:
 *   LOAD_BEFORE_STORE       the flag is tested before the call is counted
 *   HANDLER_NOTICES_ONLY    the handler leaves a cancel alone, and with it the notice behind it
 *   CHECK_SOME              `check` goes to two ranks before a cancel goes to all
 *   NO_MIGRATION_IDS        words and reports of a cancelled migration are taken for the present one
 */
#ifndef CALLS
#define CALLS 2 /* safe points of each rank before it finalizes */
#endif
#ifndef MIGRATIONS
#define MIGRATIONS 2
#endif
#define RANKS 3
#define DEPTH 7 /* of a channel: no sender ever blocks (asserted) */

mtype = {
  notice, agree, check, teardown, cancel, continue_, /* to a rank */
  noticed, arrived, refusal, checked, parked, running, finalizing /* from a rank */
};
mtype:state = { Running, Noticed, Agreed, Arrived, Refused, Checking, Withdrawn, Checked, Parked };
mtype:phase = { Idle, Noticing, Stopping, InCheck, Parking, Resuming };

chan down[RANKS] = [DEPTH] of { mtype, byte, byte }; /* kind, migration, stop_call */
chan up[RANKS] = [DEPTH] of { mtype, byte, byte };   /* kind, migration, passed */

mtype:state state[RANKS] = Running;
byte passed[RANKS], reported[RANKS], stop_call[RANKS], migration[RANKS];
bool signalled[RANKS], blocked[RANKS];
byte sent[RANKS];    /* halos sent, in steps */
byte entered[RANKS]; /* barriers entered */

#ifdef NO_MIGRATION_IDS
#define FITS true
#else
#define FITS (whose == migration[r])
#endif
#define CANCELLABLE \
  (state[r] == Noticed || state[r] == Agreed || state[r] == Arrived || state[r] == Refused || \
   state[r] == Checked)

inline Say(kind_, migration_, value_) {
  assert(nfull(up[r]));
  up[r]!kind_, migration_, value_
}

/* A word from the proxy. What a rank does at once because of it (enter the barrier, tear down and
 * park) is here too. */
inline On() {
  if
  :: kind == notice && state[r] == Running && whose > migration[r] ->
     migration[r] = whose; reported[r] = passed[r]; state[r] = Noticed;
     Say(noticed, whose, reported[r])
  :: kind == agree && state[r] == Noticed && FITS -> stop_call[r] = at; state[r] = Agreed
  :: kind == check && state[r] == Arrived && FITS -> entered[r]++; state[r] = Checking
  :: kind == teardown && state[r] == Checked && FITS ->
     assert(passed[0] == passed[1] && passed[1] == passed[2]);
     assert(entered[0] == entered[1] && entered[1] == entered[2]);
     state[r] = Parked; Say(parked, whose, 0)
  :: kind == continue_ && state[r] == Parked && FITS -> state[r] = Running; Say(running, whose, 0)
  :: kind == cancel && FITS && state[r] == Checking -> state[r] = Withdrawn
  :: kind == cancel && FITS && CANCELLABLE -> state[r] = Running
  :: else -> assert(kind != cancel || state[r] != Parked) /* stale */
  fi;
  if
  :: state[r] == Running -> reported[r] = 0; stop_call[r] = 0
  :: else
  fi;
  kind = 0; whose = 0; at = 0
}

#ifdef HANDLER_NOTICES_ONLY
#define FOR_HANDLER (kind == notice)
#else
#define FOR_HANDLER (kind == notice || kind == agree || kind == cancel)
#endif

/* Interrupts its rank anywhere and runs to its end. It stays for a rank that has finalized. */
proctype Handler(byte r) {
  mtype kind; byte whose, at;
end:
  do
  :: atomic {
       signalled[r] && !blocked[r] ->
       signalled[r] = false;
       do
       :: nempty(down[r]) ->
          down[r]?<kind, whose, at>;
          if
          :: FOR_HANDLER -> down[r]?kind, whose, at; On()
          :: else -> kind = 0; whose = 0; at = 0; break
          fi
       :: empty(down[r]) -> break
       od
     }
  od
}

#define LEFT ((r + RANKS - 1) % RANKS)
#define RIGHT ((r + 1) % RANKS)
#define HALOS_ARE_IN (sent[LEFT] >= sent[r] && sent[RIGHT] >= sent[r])
#define ALL_ENTERED (entered[0] >= entered[r] && entered[1] >= entered[r] && entered[2] >= entered[r])
#define IN_BARRIER (state[r] == Checking || state[r] == Withdrawn)
#define MUST_STOP (state[r] == Agreed && passed[r] >= stop_call[r])
#define MAY_LEAVE \
  (state[r] == Running || (state[r] == Noticed && passed[r] <= reported[r]) || \
   (state[r] == Agreed && passed[r] < stop_call[r]))

inline Slow() {
  do
  :: atomic { state[r] != Withdrawn && nempty(down[r]) -> down[r]?kind, whose, at; On() }
  :: atomic {
       MUST_STOP ->
       assert(passed[r] == stop_call[r]);
       if
       :: state[r] = Arrived; Say(arrived, migration[r], 0)
       :: state[r] = Refused; Say(refusal, migration[r], 0) /* a pending request, say */
       fi
     }
  :: atomic {
       IN_BARRIER && ALL_ENTERED ->
       if
       :: state[r] == Withdrawn -> state[r] = Running; reported[r] = 0; stop_call[r] = 0
       :: state[r] == Checking -> state[r] = Checked; Say(checked, migration[r], 0)
       :: state[r] == Checking -> state[r] = Refused; Say(refusal, migration[r], 0)
       fi
     }
  :: atomic { MAY_LEAVE -> blocked[r] = false; break }
  od
}

proctype Rank(byte r) {
  mtype kind; byte whose, at;
#ifdef LOAD_BEFORE_STORE
  bool seen;
#endif
  do
  :: sent[r] < CALLS ->
     sent[r]++;
#ifdef LOAD_BEFORE_STORE
     atomic { HALOS_ARE_IN -> seen = state[r] != Running }
     passed[r]++;
     if
     :: atomic { seen -> seen = false; blocked[r] = true }; Slow()
     :: !seen
     fi
#else
     atomic { HALOS_ARE_IN -> passed[r]++ }
     if
     :: atomic { state[r] != Running -> blocked[r] = true }; Slow()
     :: state[r] == Running
     fi
#endif
  :: atomic { sent[r] == CALLS -> blocked[r] = true; Say(finalizing, 0, 0); break }
  od
}

/* ---- The launcher, with the proxies in it: they only pass words on. ---- */

byte now; /* the migration */
byte answers, greatest;
mtype:phase phase = Idle;
bool over; /* a rank has finalized: the job is not movable any more */

inline Tell(kind_, value_, phase_) {
  assert(nfull(down[0]) && nfull(down[1]) && nfull(down[2]));
  down[0]!kind_, now, value_; down[1]!kind_, now, value_; down[2]!kind_, now, value_;
  phase = phase_; answers = 0
}

#define REVOCABLE (phase == Noticing || phase == Stopping || phase == InCheck)
#define AWAITED \
  ((phase == Noticing && kind == noticed) || (phase == Stopping && kind == arrived) || \
   (phase == InCheck && kind == checked) || (phase == Parking && kind == parked) || \
   (phase == Resuming && kind == running))
#ifdef NO_MIGRATION_IDS
#define OURS true
#else
#define OURS (whose == now)
#endif

inline Count() {
  answers++;
  if
  :: value > greatest -> greatest = value
  :: else
  fi;
  if
  :: answers < RANKS
  :: answers == RANKS && phase == Noticing -> Tell(agree, greatest + 1, Stopping); greatest = 0
#ifdef CHECK_SOME
  :: answers == RANKS && phase == Stopping && now < MIGRATIONS ->
     down[0]!check, now, 0; down[1]!check, now, 0; GiveUp()
#endif
  :: answers == RANKS && phase == Stopping -> Tell(check, 0, InCheck)
  :: answers == RANKS && phase == InCheck -> Tell(teardown, 0, Parking)
  :: answers == RANKS && phase == Parking -> Tell(continue_, 0, Resuming)
  :: answers == RANKS && phase == Resuming -> phase = Idle; answers = 0
  fi
}

inline GiveUp() { Tell(cancel, 0, Idle); greatest = 0 }

inline Take() {
  if
  :: kind == finalizing ->
     over = true;
     if
     :: REVOCABLE -> GiveUp()
     :: else -> assert(phase == Idle || phase == Resuming)
     fi
  :: AWAITED && OURS -> Count()
  :: kind == refusal && whose == now && REVOCABLE -> GiveUp()
  :: else /* late, of a cancelled migration */
  fi;
  kind = 0; whose = 0; value = 0
}

proctype Launcher() {
  mtype kind; byte whose, value;
end:
  do
  :: atomic { up[0]?kind, whose, value -> Take() }
  :: atomic { up[1]?kind, whose, value -> Take() }
  :: atomic { up[2]?kind, whose, value -> Take() }
  :: atomic {
       phase == Idle && !over && now < MIGRATIONS ->
       now++;
       Tell(notice, 0, Noticing);
       signalled[0] = true; signalled[1] = true; signalled[2] = true
     }
  :: atomic { REVOCABLE && now < MIGRATIONS -> GiveUp() }
  od
}

init {
  atomic {
    run Rank(0); run Handler(0);
    run Rank(1); run Handler(1);
    run Rank(2); run Handler(2);
    run Launcher()
  }
}
