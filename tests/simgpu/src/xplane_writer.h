// Just enough protobuf wire format to write an XSpace (xplane.proto), so that the plug-in needs no protobuf library of
// the very version that TensorFlow carries.
#pragma once
#include <stdint.h>

#include <map>
#include <string>

namespace simgpu {

// A message under construction: `u` adds a number, `b` bytes, a string or a finished message.
struct Message {
  std::string s;
  void varint(uint64_t v) {
    while (v >= 128) s += (char)(v | 128), v >>= 7;
    s += (char)v;
  }
  void u(int f, uint64_t v) { varint(f << 3), varint(v); }
  void b(int f, const std::string& v) { varint(f << 3 | 2), varint(v.size()), s += v; }
};

// One plane: stats of the plane, then lines, each followed by its events, each followed by its stats.
class XPlaneWriter {
  Message p_, line_, event_;
  bool in_line_ = false, in_event_ = false;
  std::map<std::string, int> stats_, events_;
  int stat_id(const std::string& n) { return stats_.emplace(n, stats_.size() + 1).first->second; }
  int event_id(const std::string& n) { return events_.emplace(n, events_.size() + 1).first->second; }
  void end_event() {
    if (in_event_) line_.b(4, event_.s);  // XLine.events
    in_event_ = false, event_.s.clear();
  }
  void end_line() {
    end_event();
    if (in_line_) p_.b(3, line_.s);  // XPlane.lines
    in_line_ = false, line_.s.clear();
  }
  Message named(const std::string& n) {
    Message x;
    x.u(1, stat_id(n));
    return x;
  }

 public:
  XPlaneWriter(const std::string& name, int64_t id) { p_.u(1, id), p_.b(2, name); }
  void stat(const std::string& n, const std::string& v) {
    Message x = named(n);
    x.b(5, v);
    p_.b(6, x.s);
  }
  void stat(const std::string& n, const char* v) { stat(n, std::string(v)); }
  void stat(const std::string& n, uint64_t v) {
    Message x = named(n);
    x.u(3, v);
    p_.b(6, x.s);
  }
  void line(int64_t id, const std::string& name, int64_t t_ns) {
    end_line();
    in_line_ = true;
    line_.u(1, id), line_.b(2, name), line_.u(3, t_ns);
  }
  void event(const std::string& name, int64_t off_ns, int64_t dur_ns) {
    end_event();
    in_event_ = true;
    event_.u(1, event_id(name)), event_.u(2, off_ns * 1000), event_.u(3, dur_ns * 1000);
  }
  void estat(const std::string& n, const std::string& v) {
    Message x = named(n);
    x.b(5, v);
    event_.b(4, x.s);
  }
  void estat(const std::string& n, uint64_t v) {
    Message x = named(n);
    x.u(3, v);
    event_.b(4, x.s);
  }
  void estat_ref(const std::string& n, const std::string& v) {
    Message x = named(n);
    x.u(7, stat_id(v));
    event_.b(4, x.s);
  }
  std::string str() {
    end_line();
    for (auto& [n, i] : events_) {
      Message m, e;
      m.u(1, i), m.b(2, n);
      e.u(1, i), e.b(2, m.s);
      p_.b(4, e.s);  // event_metadata
    }
    for (auto& [n, i] : stats_) {
      Message m, e;
      m.u(1, i), m.b(2, n);
      e.u(1, i), e.b(2, m.s);
      p_.b(5, e.s);  // stat_metadata
    }
    return p_.s;
  }
};

class XSpaceWriter {
  Message s_;

 public:
  void add(XPlaneWriter& p) { s_.b(1, p.str()); }
  const std::string& str() { return s_.s; }
};

}  // namespace simgpu
