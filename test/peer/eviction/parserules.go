package eviction

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A refusal is one way in which our parser reads a setting differently from the kubelet.
type refusal int

const (
	otherWords refusal = iota + 1
	endless
	mistake
	pairsNamed
)

// parseRules are about settings of thresholds.
func parseRules() (all []judge.Rule[*settingsWorld]) {
	for _, c := range []struct {
		cause          refusal
		name, sentence string
	}{
		{otherWords, "wording of parse errors", "For a number or a duration that cannot be parsed, the kubelet reports the error of Go's packages; ours names a valid example."},
		{endless, "quantities with huge exponents", "Ours refuses an amount with an excessively large exponent without computing the amount."},
		{mistake, "strict validation of eviction settings", "Ours refuses settings that can only be mistakes, with one error for all of them; [ThresholdSettings.Lenient] accepts them as the kubelet does."},
		{pairsNamed, "repeated or malformed flag values", "If a flag has two values for one signal, the kubelet uses the last; ours refuses the flag. The error also names each malformed pair."},
	} {
		all = append(all, judge.Rule[*settingsWorld]{
			Name: c.name, Class: judge.Deliberate, Doc: doc, Sentence: c.sentence,
			Explains: func(s judge.Scene[*settingsWorld]) bool { return readUnlike(s) == c.cause },
		})
	}
	return all
}

// readUnlike returns why our parser reads a setting differently from the kubelet. It is 0 if
// no refusal predicts our result.
func readUnlike(s judge.Scene[*settingsWorld]) refusal {
	mode, rest, _ := strings.Cut(s.Fact, " ")
	switch {
	case mode == "flag":
		if s.Ours == flagRefusal(s.World.Flags[strings.Index("<=", rest)], rest) {
			return pairsNamed
		}
		return 0
	case mode == "policy":
		if s.Ours == policyMistakes(&s.World.Policy) {
			return mistake
		}
		return 0
	case rest == "":
		return s.World.readWhole(s, mode)
	}
	field, key, _ := strings.Cut(strings.TrimSuffix(rest, "]"), "[")
	want, cause := s.World.refusal(field, key, mode == "strict")
	if want != s.Ours {
		return 0
	}
	return cause
}

// readWhole explains that our parser rejects all settings, or reads them differently from the
// kubelet.
func (w *settingsWorld) readWhole(s judge.Scene[*settingsWorld], mode string) refusal {
	isRefused, first := false, refusal(0)
	for _, field := range []string{hardField, softField, graceField, reclaimField} {
		for key := range w.fields()[field] {
			if text, cause := w.refusal(field, key, mode == "strict"); text != "" {
				isRefused = true
				first = max(first, cause)
			}
		}
	}
	if isRefused && s.Ours == "refused" && s.Kubelet != "refused" {
		return first
	}
	return 0
}

// flagRefusal returns our error for a flag.
func flagRefusal(text, separator string) string {
	var lines, seen []string
	for part := range strings.SplitSeq(text, ",") {
		key, _, ok := strings.Cut(part, separator)
		key = strings.TrimSpace(key)
		switch {
		case part == "":
			continue
		case !ok:
			lines = append(lines, fmt.Sprintf("malformed pair %q, expect string%sstring", part, separator))
		case slices.Contains(seen, key):
			lines = append(lines, key+" is set twice")
		}
		seen = append(seen, key)
	}
	return "refused: " + strings.Join(lines, "\n")
}

// refusal returns our error for a setting, "" if there is no error, and why the kubelet's
// result differs.
func (w *settingsWorld) refusal(field, key string, strict bool) (text string, cause refusal) {
	value := w.fields()[field][key]
	text = w.alone(field, key)
	isSignal := slices.Contains(signalNames(), key)
	switch {
	case !isSignal:
		return text, 0
	case strict && (field == hardField || field == softField) && w.isFixed(key) != "":
		text, cause = w.isFixed(key), mistake
	case field == graceField && strings.HasPrefix(text, "time: "):
		text, cause = strconv.Quote(value)+" is not a duration such as 1m30s", otherWords
	case field != graceField:
		text, cause = w.amountRefusal(field, key, value, strict)
	}
	if strict {
		if more := w.belongs(field, key); more != "" {
			return strings.TrimPrefix(text+"\n"+more, "\n"), mistake
		}
	}
	return text, cause
}

// isFixed returns the reason for which a signal cannot be set.
func (w *settingsWorld) isFixed(key string) string {
	switch {
	case strings.HasPrefix(key, "containerfs."):
		return "cannot be set: it follows from the nodefs or imagefs threshold, depending on the filesystem layout"
	case key == "allocatableMemory.available" && (w.Enforce == nil || slices.Contains(w.Enforce, "pods")):
		return `cannot be set with "pods" in enforceNodeAllocatable, which copies the threshold of memory.available`
	default:
		return ""
	}
}

// amountRefusal returns our error for an amount.
func (w *settingsWorld) amountRefusal(field, key, value string, strict bool) (text string, cause refusal) {
	text = w.alone(field, key)
	isThreshold := field != reclaimField
	if isThreshold && (value == "0%" || value == "100%") {
		return text, 0
	}
	if number, ok := strings.CutSuffix(value, "%"); ok {
		return w.partRefusal(field, key, number, strict)
	}
	if strings.Contains(value, "1e100") || strings.Contains(value, "1e-100") {
		return fmt.Sprintf("%q is not an amount: the exponent of %q is out of range", value, value), endless
	}
	if len(value) > 200 {
		return fmt.Sprintf("%q is not an amount: %.40q has %d digits, too many for a quantity", value, value, len(value)), endless
	}
	q, err := resource.ParseQuantity(value)
	switch {
	case err != nil:
		return fmt.Sprintf("%q is not an amount: %v", value, err), otherWords
	case strict && q.CmpInt64(q.Value()) != 0:
		return fmt.Sprintf("%q is not a whole number that fits into 64 bits", value), mistake
	case isThreshold && q.Sign() <= 0:
		return "eviction threshold " + key + " must be positive: " + value, otherWords
	default:
		return text, 0
	}
}

// partRefusal returns our error for a part of the capacity. number is the text in front of
// the last percent sign.
func (w *settingsWorld) partRefusal(field, key, number string, strict bool) (text string, cause refusal) {
	text = w.alone(field, key)
	value := number + "%"
	isPlain := !strings.ContainsFunc(number, func(r rune) bool { return !strings.ContainsRune("0123456789.", r) })
	f, err := strconv.ParseFloat(strings.TrimRight(number, "%"), 32)
	part := float32(f) / 100
	switch {
	case err != nil && (!strict || isPlain):
		return strconv.Quote(value) + " is not a percentage such as 10% or 2.5%", otherWords
	case strict && !isPlain:
		return strconv.Quote(value) + " is not a percentage such as 10% or 2.5%", mistake
	case field == reclaimField && strict && part > 1:
		return value + " of the capacity can never be available", mistake
	case field == reclaimField:
		return text, 0
	case strict && (part == 0 || part == 1):
		return value + " is not between 0% and 100%: use 0% for no threshold", mistake
	default:
		return text, 0
	}
}
