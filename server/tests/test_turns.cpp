// Who takes turns with whom, over HTTP.
#include <doctest/doctest.h>

#include <fstream>
#include <future>

#include "server/http/routes.h"
#include "server/tests/folder.h"

using namespace hardtack::serve;

TEST_CASE("a token is one client on however many connections it comes; others are their connections") {
  const testing::Folder folder;
  std::ofstream(folder.path / "tokens") << "a token-a-0123456789 control\nb token-b-0123456789 control\n";
  const auto log = std::move(*Log::open("/dev/null", LogFormat::kJson, Level::kError));
  Budget budget(std::uint64_t{1} << 30);
  RepositoryOptions options;
  options.path = folder.path;
  options.threads = 1;
  const auto repository = std::move(*Repository::open(options, budget, *log));
  SharedMemory shared;
  for (const bool tokens : {true, false}) {
    auto access = Access::open(tokens ? (folder.path / "tokens").string() : "", *log);
    REQUIRE(access.ok());
    std::promise<void> release;
    std::string order;
    {
      Background control(1, *log), parsing(0, *log);
      http::Routes routes(*repository, shared, **access, *log, 1000, control, parsing, [](MetricsPage&) {});
      control.post(0, [until = release.get_future().share()] { until.wait(); });
      const auto load = [&](std::uint64_t connection, const char* token) {
        http::HttpRequest request;
        request.method = http::Method::kPost;
        request.target = "/v2/repository/models/none/load";
        request.connection = connection;
        request.authorization = std::string("Bearer ") + token;
        REQUIRE_FALSE(routes.admit(request, false));
        routes.handle(std::move(request), [&order, token, connection](http::HttpReply&& reply) {
          CHECK(reply.status == 404);
          order += token[6] + std::to_string(connection);
        });
      };
      for (const std::uint64_t connection : {1, 2, 2}) load(connection, "token-a-0123456789");
      load(3, "token-b-0123456789");
      release.set_value();
    }
    CHECK(order == (tokens ? "a1b3a2a2" : "a1a2b3a2"));
  }
}
