#include "rank/books.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

namespace xmpi::rank {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr auto kNoneKept = [](MPI_Comm) { return false; };

TEST(Books, AnEmptyBookIsNoObstacle) {
  Books book;
  EXPECT_THAT(book.Obstacle(kNoneKept), IsEmpty());
  book.Completed(5);
  book.Gone(Thing::kRequest, 5);
  book.Started(5);
  EXPECT_THAT(book.Obstacle(kNoneKept), IsEmpty());
}

TEST(Books, OneHandleMayStandForSeveralRequests) {
  Books book;
  book.Made(Thing::kRequest, 1, "MPI_Isend");
  book.Made(Thing::kRequest, 1, "MPI_Isend");
  book.Completed(1);
  EXPECT_THAT(book.Obstacle(kNoneKept), HasSubstr("MPI_Isend (1 pending in all)"));
  book.Completed(1);
  EXPECT_THAT(book.Obstacle(kNoneKept), IsEmpty());
}

TEST(Books, APersistentRequestIsPendingOnlyWhileStarted) {
  Books book;
  book.SetRegistering(true);
  book.Made(Thing::kRequest, 1, "MPI_Send_init", true);
  book.SetRegistering(false);
  EXPECT_THAT(book.Obstacle(kNoneKept), IsEmpty()) << "idle, and its release frees it";
  book.Started(1);
  EXPECT_THAT(book.Obstacle(kNoneKept), HasSubstr("pending request of MPI_Send_init"));
  book.Completed(1);
  EXPECT_THAT(book.Obstacle(kNoneKept), IsEmpty());
  EXPECT_EQ(book.Leftovers(), "MPI_Send_init");
  book.Gone(Thing::kRequest, 1);
  EXPECT_EQ(book.Leftovers(), "");
}

TEST(Books, APersistentRequestOfTheProgramIsInTheWayEvenIdle) {
  Books book;
  book.Made(Thing::kRequest, 1, "MPI_Recv_init", true);
  EXPECT_THAT(book.Obstacle(kNoneKept), HasSubstr("persistent request of MPI_Recv_init"));
}

TEST(Books, HandlesOfDifferentThingsDoNotMeet) {
  Books book;
  book.Made(Thing::kRequest, 1, "MPI_Isend");
  book.Gone(Thing::kWindow, 1);
  book.Gone(Thing::kType, 1);
  EXPECT_EQ(book.Count(Thing::kRequest), 1u);
}

TEST(Books, WhatARegisteredCallbackMadeIsNoObstacle) {
  Books book;
  book.SetRegistering(true);
  book.Made(Thing::kWindow, 1, "MPI_Win_create");
  book.SetRegistering(false);
  book.Made(Thing::kType, 1, "MPI_Type_vector");
  EXPECT_THAT(book.Obstacle(kNoneKept), HasSubstr("derived datatype of MPI_Type_vector"));
  book.Gone(Thing::kType, 1);
  EXPECT_THAT(book.Obstacle(kNoneKept), IsEmpty());
}

// Against a plain count per handle: what is made, completed and freed in any order balances.
TEST(Books, ARandomWalkAgreesWithACount) {
  std::mt19937 random(7);
  Books book;
  std::map<std::uintptr_t, int> pending;
  for (int i = 0; i < 20000; ++i) {
    const std::uintptr_t handle = random() % 50;
    if (random() % 2 == 0) {
      book.Made(Thing::kRequest, handle, "MPI_Irecv");
      ++pending[handle];
    } else {
      random() % 2 == 0 ? book.Completed(handle) : book.Gone(Thing::kRequest, handle);
      if (pending[handle] > 0) --pending[handle];
    }
    std::size_t total = 0;
    for (const auto& [key, count] : pending) total += count;
    ASSERT_EQ(book.Count(Thing::kRequest), total);
  }
}

TEST(Books, ManyThreadsMayWriteAtOnce) {
  Books book;
  std::vector<std::thread> threads;
  for (std::uintptr_t thread = 0; thread < 4; ++thread)
    threads.emplace_back([&book, thread] {
      for (std::uintptr_t i = 0; i < 20000; ++i) {
        book.Made(Thing::kRequest, thread * 100 + i % 7, "MPI_Isend");
        book.Completed(thread * 100 + i % 7);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(book.Count(Thing::kRequest), 0u);
}

}  // namespace
}  // namespace xmpi::rank
