package localapi

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// objectsPerPage is the default size of a page of objects.
const objectsPerPage = 1000

func (s *Server) routeStorage() {
	s.handle("GET /d1/database", s.listDatabases)
	s.handle("POST /d1/database", s.makeDatabase)
	s.handle("DELETE /d1/database/{id}", func(r *http.Request, _ []byte) answer {
		id := r.PathValue("id")
		if _, there := s.databases[id]; !there {
			return failed(http.StatusNotFound, 7404, "The database "+id+" could not be found")
		}
		delete(s.databases, id)
		return ok(nil)
	})
	s.handle("POST /d1/database/{id}/query", s.queryDatabase)
	s.handle("GET /r2/buckets", func(*http.Request, []byte) answer {
		all := []map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(s.buckets)) {
			all = append(all, map[string]string{"name": name})
		}
		return ok(map[string]any{"buckets": all})
	})
	s.handle("POST /r2/buckets", s.makeBucket)
	s.onBucket("GET /r2/buckets/{name}", func(_ map[string][]byte, r *http.Request, _ []byte) answer {
		return ok(map[string]string{"name": r.PathValue("name")})
	})
	s.onBucket("DELETE /r2/buckets/{name}", func(objects map[string][]byte, r *http.Request, _ []byte) answer {
		if len(objects) > 0 {
			return failed(http.StatusConflict, 10008, "The bucket you tried to delete is not empty.")
		}
		delete(s.buckets, r.PathValue("name"))
		return ok(map[string]any{})
	})
	s.onBucket("GET /r2/buckets/{name}/objects", listObjects)
	s.onBucket("PUT /r2/buckets/{name}/objects/{key...}",
		func(objects map[string][]byte, r *http.Request, body []byte) answer {
			objects[r.PathValue("key")] = body
			return ok(map[string]string{"key": r.PathValue("key")})
		})
	s.onBucket("DELETE /r2/buckets/{name}/objects/{key...}",
		func(objects map[string][]byte, r *http.Request, _ []byte) answer {
			delete(objects, r.PathValue("key"))
			return ok(map[string]string{"key": r.PathValue("key")})
		})
}

func (s *Server) listDatabases(r *http.Request, _ []byte) answer {
	all := []map[string]string{}
	for id, name := range s.databases {
		if strings.Contains(name, r.URL.Query().Get("name")) {
			all = append(all, map[string]string{"uuid": id, "name": name})
		}
	}
	slices.SortFunc(all, func(a, b map[string]string) int { return strings.Compare(a["name"], b["name"]) })
	page := max(number(r, "page", 1), 1)
	size := number(r, "per_page", 100)
	from := min((page-1)*size, len(all))
	shown := all[from:min(from+size, len(all))]
	return answer{
		status: http.StatusOK,
		result: shown,
		info:   map[string]int{"page": page, "per_page": size, "count": len(shown), "total_count": len(all)},
	}
}

func number(r *http.Request, name string, otherwise int) int {
	n, err := strconv.Atoi(r.URL.Query().Get(name))
	if err != nil {
		return otherwise
	}
	return n
}

func (s *Server) makeDatabase(_ *http.Request, body []byte) answer {
	var wanted struct {
		Name string `json:"name"`
	}
	if a := read(body, &wanted); a != nil {
		return *a
	}
	for _, name := range s.databases {
		if name == wanted.Name {
			return failed(http.StatusBadRequest, 7502, "Database with name '"+name+"' already exists")
		}
	}
	id := newUUID()
	s.databases[id] = wanted.Name
	return ok(map[string]string{"uuid": id, "name": wanted.Name})
}

// queryDatabase queries a database of a running Worker.
func (s *Server) queryDatabase(r *http.Request, body []byte) answer {
	id := r.PathValue("id")
	if _, there := s.databases[id]; !there {
		return failed(http.StatusNotFound, 7404, "The database "+id+" could not be found")
	}
	var wanted struct {
		SQL    string `json:"sql"`
		Params []any  `json:"params"`
	}
	if a := read(body, &wanted); a != nil {
		return *a
	}
	worker, binding := s.boundTo(id)
	if worker == "" {
		return failed(http.StatusBadRequest, 7500,
			"on this machine a database is its Worker's: nothing that runs is bound to "+id)
	}
	rows, err := s.cfg.Runtime.Query(r.Context(),
		Query{Worker: worker, Binding: binding, Statement: wanted.SQL, Params: wanted.Params})
	if err != nil {
		return failed(http.StatusBadRequest, 7500, err.Error())
	}
	return ok([]map[string]any{{"success": true, "results": rows}})
}

// boundTo returns a running Worker that is bound to a database, and the name of the binding.
func (s *Server) boundTo(database string) (worker, binding string) {
	for _, w := range s.scripts {
		p, _ := s.program(w)
		for name, id := range p.Databases {
			if id == database && w.localURL != "" {
				return w.name, name
			}
		}
	}
	return "", ""
}

func (s *Server) makeBucket(_ *http.Request, body []byte) answer {
	var wanted struct {
		Name string `json:"name"`
	}
	if a := read(body, &wanted); a != nil {
		return *a
	}
	if _, there := s.buckets[wanted.Name]; there {
		return failed(http.StatusConflict, 10004, "The bucket you tried to create already exists, and you own it.")
	}
	s.buckets[wanted.Name] = map[string][]byte{}
	return ok(map[string]string{"name": wanted.Name})
}

func (s *Server) onBucket(pattern string, answerTo func(map[string][]byte, *http.Request, []byte) answer) {
	s.handle(pattern, func(r *http.Request, body []byte) answer {
		objects, there := s.buckets[r.PathValue("name")]
		if !there {
			return failed(http.StatusNotFound, 10006, "The specified bucket does not exist.")
		}
		return answerTo(objects, r, body)
	})
}

func listObjects(objects map[string][]byte, r *http.Request, _ []byte) answer {
	keys := slices.Sorted(maps.Keys(objects))
	shown := []map[string]any{}
	for _, key := range keys[:min(number(r, "per_page", objectsPerPage), len(keys))] {
		shown = append(shown, map[string]any{"key": key, "size": strconv.Itoa(len(objects[key]))})
	}
	return answer{status: http.StatusOK, result: shown, info: map[string]any{"is_truncated": len(shown) < len(keys)}}
}
