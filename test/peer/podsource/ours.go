package podsource

import (
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/podmanager/podsource"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// oursSide plays a world with a Directory or an HTTP.
func oursSide(t *testing.T, w *world) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		dir := folder(t)
		var now step
		told := &observer{}
		read := &passes{}
		directory, err := podsource.NewDirectory(podsource.DirectoryConfig{Path: filepath.Join(dir, "manifests"), NodeName: w.Node, PollOnly: true, Clock: clock.RealClock{}, Observer: podsource.Observer{ProblemsChanged: told.changed}})
		require.NoError(t, err)
		server, err := podsource.NewHTTP(podsource.HTTPConfig{
			URL: "http://host/pods", NodeName: w.Node, Clock: clock.RealClock{}, Observer: podsource.Observer{ProblemsChanged: told.changed},
			Client: &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return answer(now) })},
		})
		require.NoError(t, err)
		m := newMemory()
		for i, s := range w.Steps {
			time.Sleep(time.Duration(s.After) * time.Second)
			now = s
			f := judge.Facts{}
			var res podsource.Result
			if w.HTTP {
				res, _ = server.Load(t.Context()) // the problems contain the error
			} else {
				write(t, dir, s)
				res, _ = directory.Load(t.Context())
			}
			require.Equal(t, read.expect(w, s), res.FilesRead)
			require.ElementsMatch(t, textsOf(res.Problems), told.problems)
			m.pods(f, w, i, res.Pods)
			for _, p := range res.Problems {
				require.True(t, w.HTTP && p.File == "http://host/pods" || !w.HTTP && strings.HasPrefix(p.File, dir), p.File)
				ourProblem(f, w, s, p)
			}
			all = append(all, f)
		}
	})
	return all
}

// An observer maintains the current problems from the notifications.
type observer struct{ problems []string }

func (o *observer) changed(added, gone []podsource.Problem) {
	o.problems = append(o.problems, textsOf(added)...)
	for _, text := range textsOf(gone) {
		if i := slices.Index(o.problems, text); i >= 0 {
			o.problems = slices.Delete(o.problems, i, i+1)
		}
	}
}

func textsOf(all []podsource.Problem) (texts []string) {
	for _, p := range all {
		texts = append(texts, p.Error())
	}
	return texts
}

// ourProblem adds what is wrong with one document.
func ourProblem(f judge.Facts, w *world, s step, p podsource.Problem) {
	name := filepath.Base(p.File)
	if w.HTTP {
		name = "answer"
	}
	if !readsStep(w, s) {
		return // the directory is missing, or the request failed
	}
	at := slices.IndexFunc(s.Files, func(f file) bool { return f.Name == name })
	if at < 0 || !s.Files[at].whole() || p.Document == 0 {
		f["file "+name+" text"] = "refused"
		return
	}
	prefix := documentPrefix(name, p.Document-1)
	if p.Document > len(s.Files[at].Docs) {
		// A document of an earlier valid version of the file.
		f[prefix+"taken metadata.name"] = "yes"
		return
	}
	var errs field.ErrorList
	if list, ok := p.Err.(interface{ Unwrap() []error }); ok {
		for _, err := range list.Unwrap() {
			if e, ok := errors.AsType[*field.Error](err); ok {
				errs = append(errs, e)
			}
		}
	}
	if len(errs) == 0 {
		if len(strictOf(s.Files[at].Docs[p.Document-1])) > 0 {
			f[prefix+"verdict"] = "refused"
			return
		}
		f[prefix+"decode"] = "refused"
		return
	}
	doc := s.Files[at].Docs[p.Document-1]
	if len(strictOf(doc)) > 0 {
		f[prefix+"verdict"] = "refused"
		for _, e := range errs {
			if e.Detail == unknownField || e.Detail == givenTwice {
				f[prefix+"strict "+e.Field] = e.Detail
			}
		}
		return
	}
	if slices.ContainsFunc(errs, func(e *field.Error) bool {
		return e.Type == field.ErrorTypeTypeInvalid || e.Field == "kind" || e.Field == "apiVersion"
	}) {
		f[prefix+"decode"] = "refused"
		return
	}
	for _, e := range errs {
		if container, ok := strings.CutSuffix(e.Field, ".image"); ok && e.Type == field.ErrorTypeInvalid && strings.HasSuffix(container, "]") {
			f[prefix+"image "+container] = "no reference"
		}
		if e.Type == field.ErrorTypeDuplicate && strings.Contains(e.Detail, "already defined in") {
			f[prefix+"taken "+e.Field] = "yes"
		} else {
			addProblems(f, prefix, field.ErrorList{e})
		}
	}
}
