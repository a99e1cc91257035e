package kubeletapi

import (
	"cmp"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/internal/printable"
)

// zpageHeader is the start of the text of /statusz and /flagz, with the name of the program and of
// the page.
const zpageHeader = `
%s %s
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.
`

// zpageGroup is the API group of the JSON of /statusz and /flagz.
const zpageGroup = "config.k8s.io"

// zpage is the common part of the JSON of /statusz and /flagz.
type zpage struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        zpageMeta `json:"metadata"`
}

type zpageMeta struct {
	Name string `json:"name"`
}

// statuszJSON is the kubelet's Statusz.
type statuszJSON struct {
	zpage

	StartTime     metav1.Time `json:"startTime"`
	UptimeSeconds int64       `json:"uptimeSeconds"`
	GoVersion     string      `json:"goVersion"`
	BinaryVersion string      `json:"binaryVersion"`
	Paths         []string    `json:"paths"`
}

// flagzJSON is the kubelet's Flagz.
type flagzJSON struct {
	zpage

	Flags map[string]string `json:"flags,omitempty"`
}

// statusz responds with the start time, the versions and the paths of the program.
func (s *Server) statusz(w http.ResponseWriter, r *http.Request) {
	version, ok := zpageVersion(w, r, "Statusz")
	if !ok {
		return
	}
	info := s.cfg.Info()
	info.Name, info.Version = cmp.Or(info.Name, "agent"), cmp.Or(info.Version, "unknown")
	if info.Started.IsZero() {
		info.Started = s.cfg.Clock.Now() // unknown
	}
	up := max(0, s.cfg.Clock.Since(info.Started))
	paths := s.listedPaths()
	if version != "" {
		writeJSON(w, statuszJSON{
			zpage: newZpage(info.Name, "Statusz", version), StartTime: metav1.NewTime(info.Started), UptimeSeconds: int64(up.Seconds()),
			GoVersion: runtime.Version(), BinaryVersion: info.Version, Paths: paths,
		})
		return
	}
	fmt.Fprintf(w, zpageHeader, printable.Line(info.Name), "statusz")
	seconds := int64(up.Seconds())
	fmt.Fprintf(w, "\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\n\nPaths: %s\n",
		info.Started.Format(time.UnixDate), seconds/3600, seconds/60%60, seconds%60, runtime.Version(), cmp.Or(printable.Line(info.Version), "unknown"), strings.Join(paths, " "))
}

// flagz responds with the flags of the program and their values.
func (s *Server) flagz(w http.ResponseWriter, r *http.Request) {
	version, ok := zpageVersion(w, r, "Flagz")
	if !ok {
		return
	}
	name, flags := cmp.Or(s.cfg.Info().Name, "agent"), s.cfg.Flags()
	if version != "" {
		writeJSON(w, flagzJSON{zpage: newZpage(name, "Flagz", version), Flags: flags})
		return
	}
	fmt.Fprintf(w, zpageHeader, printable.Line(name), "flagz")
	for _, flag := range slices.Sorted(maps.Keys(flags)) {
		fmt.Fprintf(w, "%s=%s\n", printable.Line(flag), printable.Line(flags[flag]))
	}
}

func newZpage(name, kind, version string) zpage {
	return zpage{TypeMeta: metav1.TypeMeta{Kind: kind, APIVersion: zpageGroup + "/" + version}, Metadata: zpageMeta{Name: name}}
}

// zpageVersion returns the API version in which the client wants the JSON of a page, or "" if the
// client wants text. The JSON needs a media type such as
// application/json;g=config.k8s.io;v=v1beta1;as=Statusz. zpageVersion sets the content type. If the
// client accepts neither text nor this JSON, zpageVersion responds with 406 and returns false.
func zpageVersion(w http.ResponseWriter, r *http.Request, kind string) (version string, ok bool) {
	h := w.Header()
	h.Set("Content-Type", plainText)
	accept := r.Header.Get("Accept")
	if strings.TrimSpace(accept) == "" {
		return "", true
	}
	for accepted := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(accepted)
		switch {
		case err != nil:
		case media == "text/plain" || media == "text/*" || media == "*/*":
			return "", true
		case media != "application/json" || params["g"] != zpageGroup || params["as"] != kind:
		case params["v"] == "v1alpha1":
			h.Set("Warning", fmt.Sprintf(`299 - "This version of the %s endpoint is deprecated. Please use a newer version."`, strings.ToLower(kind)))
			return params["v"], true
		case params["v"] == "v1beta1":
			return params["v"], true
		}
	}
	refuse(w, &statusError{code: http.StatusNotAcceptable, message: fmt.Sprintf(
		"only the following media types are accepted: text/plain, application/json;g=%s;v=v1beta1;as=%s", zpageGroup, kind)})
	return "", false
}

// listedPaths returns the first elements of the paths of all endpoints, except endpoints whose
// paths contain the names of objects.
func (s *Server) listedPaths() []string {
	paths := map[string]bool{}
	for _, e := range s.endpoints() {
		first := firstSegment(e.pattern)
		if first != "{$}" && !strings.Contains(strings.TrimSuffix(e.pattern, "{$}"), "{") {
			paths["/"+first] = true
		}
	}
	return slices.Sorted(maps.Keys(paths))
}
