package podsource

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type scene = judge.Scene[*world]

const docPath = "podmanager/podsource/doc.go"

// problem splits a fact about an invalid field.
func problem(fact string) (prefix, path string, ok bool) {
	prefix, path, ok = strings.Cut(fact, " problem ")
	return prefix + " ", path, ok
}

// onlyKubelet reports whether the fact is a problem that only the kubelet reports.
func onlyKubelet(s scene) (prefix, path string, ok bool) {
	prefix, path, ok = problem(s.Fact)
	return prefix, path, ok && s.Kubelet == "yes" && s.Ours == ""
}

// onlyOurs reports whether the fact is a problem that only our source reports.
func onlyOurs(s scene) (prefix, path string, ok bool) {
	prefix, path, ok = problem(s.Fact)
	return prefix, path, ok && s.Kubelet == "" && s.Ours == "yes"
}

// fileOf returns the file of a fact, and the index of the document, -1 if the fact is about
// the whole file.
func fileOf(s scene) (f file, doc int, what string, ok bool) {
	rest, ok := strings.CutPrefix(s.Fact, "file ")
	if !ok {
		return file{}, 0, "", false
	}
	name, what, _ := strings.Cut(rest, " ")
	name, number, hasDoc := strings.Cut(name, "#")
	doc = -1
	if hasDoc {
		if _, err := fmt.Sscan(number, &doc); err != nil {
			return file{}, 0, "", false
		}
	}
	i := slices.IndexFunc(s.World.Steps[s.Step].Files, func(f file) bool { return f.Name == name })
	if i < 0 {
		return file{}, 0, "", false
	}
	return s.World.Steps[s.Step].Files[i], doc, what, true
}

// document returns the document that a fact is about.
func document(s scene) any {
	f, doc, _, ok := fileOf(s)
	if !ok || doc < 0 || doc >= len(f.Docs) {
		return nil
	}
	return f.Docs[doc]
}

func rules() []judge.Rule[*world] {
	all := slices.Concat(podRules(), manyRules(), identityRules(), valueRules(), defaultRules())
	for _, g := range groups() {
		has := g.matcher()
		r := judge.Rule[*world]{
			Name: g.name, Class: g.class, Sentence: g.sentence, Doc: docPath,
			Explains: func(s scene) bool {
				_, path, ok := onlyKubelet(s)
				return ok && has(path)
			},
		}
		all = append(all, r)
	}
	return slices.Concat(all, fieldRules(), imageRules(), stricterRules(), laxerRules())
}
