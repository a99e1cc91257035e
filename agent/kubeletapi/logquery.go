package kubeletapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxLogQuery is how long a query of logs may run.
	maxLogQuery = 30 * time.Second
	// maxLogServices is the maximum number of services in a query, and maxServiceName is the
	// maximum length of a name. maxQueryLines is the maximum of tailLines.
	maxLogServices = 4
	maxServiceName = 256
	maxQueryLines  = 100_000
)

// isServiceName reports whether a name may be passed to journalctl.
func isServiceName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.:@", r)
	})
}

// A logQuery is a query of /logs/ for the log of services or for a file.
type logQuery struct {
	services, files []string
	since, until    *time.Time
	boot, lines     *int
	pattern         string
}

// parseSystemLogQuery parses a query of /logs/ as the kubelet does. It returns nil if the request
// has no query.
func parseSystemLogQuery(query url.Values) (*logQuery, error) {
	q := &logQuery{pattern: query.Get("pattern")}
	for _, text := range query["query"] {
		if strings.ContainsAny(text, `/\`) {
			q.files = append(q.files, text)
		} else if strings.TrimSpace(text) != "" {
			q.services = append(q.services, text)
		}
	}
	var errs []error
	isEmpty := len(q.files)+len(q.services) == 0
	if query.Has("query") && isEmpty {
		errs = append(errs, errors.New("query: may not be empty"))
	}
	q.boot = parseOption(query, "boot", strconv.Atoi, &errs)
	q.since = parseOption(query, "sinceTime", parseTime, &errs)
	q.lines = parseOption(query, "tailLines", strconv.Atoi, &errs)
	q.until = parseOption(query, "untilTime", parseTime, &errs)
	switch {
	case len(errs) > 0:
		return nil, badRequest(errors.Join(errs...))
	case isEmpty && !q.hasOptions():
		return nil, nil
	default:
		return q, nil
	}
}

// parseOption parses a parameter. It returns nil if the parameter is missing or empty, and appends
// an error to errs if it is invalid.
func parseOption[T any](query url.Values, name string, parse func(string) (T, error), errs *[]error) *T {
	text := query.Get(name)
	if text == "" {
		return nil
	}
	value, err := parse(text)
	if err != nil {
		*errs = append(*errs, fmt.Errorf("%s: %w", name, err))
	}
	return &value
}

func parseTime(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		err = fmt.Errorf("invalid time format: %q", text)
	}
	return at, err
}

// hasOptions reports whether q limits the lines of a log.
func (q *logQuery) hasOptions() bool {
	return q.since != nil || q.until != nil || q.boot != nil || q.lines != nil || q.pattern != ""
}

// validate returns every problem with q, by the kubelet's rules.
func (q *logQuery) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(q.files)+len(q.services) > 0, "query: cannot be empty with options")
	check(len(q.files) == 0 || len(q.services) == 0, "query: cannot specify a file and service")
	check(len(q.files) <= 1, "query: cannot specify more than one file")
	check(len(q.files) == 0 || !q.hasOptions(), "query: cannot specify file with options")
	check(len(q.services) <= maxLogServices, "query: must have at most %d services", maxLogServices)
	for _, name := range q.services {
		check(len(name) <= maxServiceName, "query: length must be less than %d", maxServiceName)
		check(isServiceName(name), "query: input contains unsupported characters: %q", name)
	}
	check(q.since == nil || q.until == nil || !q.since.After(*q.until), "untilTime: must be after `sinceTime`")
	check(q.boot == nil || *q.boot <= 0, "boot: must be less than 1")
	check(q.lines == nil || *q.lines >= 0 && *q.lines <= maxQueryLines, "tailLines: must be between 0 and %d, inclusive", maxQueryLines)
	_, err := syntax.Parse(q.pattern, syntax.Perl)
	check(err == nil, "pattern: %v", err)
	return errors.Join(errs...)
}

// queryLogs responds with the logs of the services or with the file of a query.
func (s *Server) queryLogs(w http.ResponseWriter, r *http.Request, q *logQuery) {
	unacceptable := func(message string) {
		refuse(w, &statusError{code: http.StatusNotAcceptable, message: message})
	}
	if r.URL.Path != "/logs/" {
		unacceptable("path not allowed in query mode")
		return
	}
	if err := q.validate(); err != nil {
		unacceptable(err.Error())
		return
	}
	if len(q.files) == 1 {
		file := *r
		file.URL = &url.URL{Path: "/logs/" + strings.TrimPrefix(filepath.ToSlash(q.files[0]), "/")}
		s.serveLogFiles(w, &file)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxLogQuery)
	defer cancel()
	w.Header().Set("Content-Type", plainText)
	s.copyServiceLogs(ctx, w, q)
}

// copyServiceLogs writes the logs of services. It reads the log of a service from the journal if
// the journal has the service, and otherwise from a file, but only if q has no options.
func (s *Server) copyServiceLogs(ctx context.Context, w io.Writer, q *logQuery) {
	var known strings.Builder
	_ = s.cfg.Journal(ctx, &known, "--field", "_SYSTEMD_UNIT") // without a journal, every log is a file
	units := strings.Fields(known.String())
	var inJournal, inFiles []string
	for _, name := range q.services {
		if slices.Contains(units, name) || slices.Contains(units, name+".service") {
			inJournal = append(inJournal, name)
		} else {
			inFiles = append(inFiles, name)
		}
	}
	if len(inJournal) > 0 {
		if err := s.cfg.Journal(ctx, w, q.journalArgs(inJournal)...); err != nil {
			fmt.Fprintf(w, "\nerror: journal output not available\n")
			s.cfg.Logger.WarnContext(ctx, "could not read the journal for a client", "services", inJournal, "err", err)
		}
	}
	switch {
	case len(inFiles) > 0 && q.hasOptions():
		fmt.Fprintf(w, "\noptions present and query resolved to log files for %v\ntry without specifying options\n", inFiles)
	default:
		for _, name := range inFiles {
			s.copyLogFile(w, name)
		}
	}
}

// journalArgs returns the arguments of journalctl.
func (q *logQuery) journalArgs(services []string) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if q.since != nil {
		args = append(args, fmt.Sprintf("--since=@%d", q.since.Unix()))
	}
	if q.until != nil {
		args = append(args, fmt.Sprintf("--until=@%d", q.until.Unix()))
	}
	if q.lines != nil {
		args = append(args, "--pager-end", fmt.Sprintf("--lines=%d", *q.lines))
	}
	for _, name := range services {
		args = append(args, "--unit="+name)
	}
	if q.pattern != "" {
		args = append(args, "--grep="+q.pattern)
	}
	if q.boot != nil {
		args = append(args, fmt.Sprintf("--boot=%d", *q.boot))
	}
	return args
}

// copyLogFile writes the log of a service that has a file: NAME, NAME.log or NAME/NAME.log.
func (s *Server) copyLogFile(w io.Writer, name string) {
	root, err := os.OpenRoot(s.cfg.SystemLogs)
	if err == nil {
		defer func() { _ = root.Close() }() // nothing was written
		for _, path := range []string{name, name + ".log", filepath.Join(name, name+".log")} {
			if err = copyRegular(w, logFiles{root}, path); !errors.Is(err, fs.ErrNotExist) {
				break
			}
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fmt.Fprintf(w, "\nlog not found for %s\n", name)
	case err != nil:
		fmt.Fprintf(w, "\nerror getting log for %s: %v\n", name, err)
	}
}

// copyRegular writes a regular file. For a folder it returns [fs.ErrNotExist].
func copyRegular(w io.Writer, files fs.FS, path string) error {
	f, err := files.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	switch info, err := f.Stat(); {
	case err != nil:
		return err
	case info.IsDir():
		return fs.ErrNotExist
	}
	_, err = io.Copy(w, f)
	return err
}

// Journalctl runs the program journalctl with args, and writes its output and its error messages
// to w. It is for [Config].Journal.
func Journalctl(ctx context.Context, w io.Writer, args ...string) error {
	command := exec.CommandContext(ctx, "journalctl", args...)
	command.Stdout, command.Stderr = w, w
	err := command.Run()
	if _, failed := errors.AsType[*exec.ExitError](err); failed {
		return nil // the messages are in the output
	}
	return err
}
