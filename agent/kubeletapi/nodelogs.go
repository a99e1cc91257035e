package kubeletapi

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"syscall"
)

// systemLogs serves the files of the folder Config.SystemLogs. If the request has a query and
// Config.Journal is set, it serves the logs of services instead.
func (s *Server) systemLogs(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Journal != nil {
		if query, err := parseSystemLogQuery(r.URL.Query()); err != nil {
			refuse(w, err)
			return
		} else if query != nil {
			s.queryLogs(w, r, query)
			return
		}
	}
	s.serveLogFiles(w, r)
}

// serveLogFiles serves the file or lists the folder at the path of the request below /logs/.
func (s *Server) serveLogFiles(w http.ResponseWriter, r *http.Request) {
	root, err := os.OpenRoot(s.cfg.SystemLogs)
	if err != nil {
		refuse(w, err)
		return
	}
	defer func() { _ = root.Close() }() // read-only
	http.StripPrefix("/logs/", http.FileServerFS(logFiles{root})).ServeHTTP(w, r)
}

// logFiles is a file system that only opens regular files and folders. Paths and links that lead
// out of the root can't be opened.
type logFiles struct{ root *os.Root }

// Open implements [fs.FS].
func (l logFiles) Open(name string) (fs.File, error) {
	// With O_NONBLOCK, opening a pipe does not wait for a writer.
	f, err := l.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil:
		return nil, errors.Join(fs.ErrPermission, err) // such as a link that leads out of the root
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() && !info.IsDir() {
		return nil, errors.Join(fs.ErrPermission, err, f.Close())
	}
	return f, nil
}
