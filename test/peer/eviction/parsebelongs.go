package eviction

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// isRead reports whether our parser can read a threshold.
func (w *settingsWorld) isRead(field, key string) bool {
	value, ok := w.fields()[field][key]
	if !ok || w.isFixed(key) != "" {
		return false
	}
	text, _ := w.amountRefusal(field, key, value, true)
	return text == "" || strings.HasPrefix(text, "grace period must be specified")
}

// belongs returns the reason for which a setting is invalid together with the others,
// although each of them may be valid.
func (w *settingsWorld) belongs(field, key string) string {
	var lines []string
	say := func(is bool, format string, args ...any) {
		if is {
			lines = append(lines, fmt.Sprintf(format, args...))
		}
	}
	_, isSoft := w.Soft[key]
	_, isHard := w.Hard[key]
	switch field {
	case softField:
		say(w.isRead(softField, key) && w.isBelowHard(key), "%s is not above the hard threshold %s and would have no effect", valueOf(w.Soft[key]), valueOf(w.hard()[key]))
	case graceField:
		grace, err := time.ParseDuration(w.Grace[key])
		say(err == nil && grace == 0, "a grace period of 0 makes the threshold hard: move the threshold to evictionHard")
		say(!isSoft, "this signal has no soft threshold")
	case reclaimField:
		isRead := w.isRead(hardField, key) || w.isRead(softField, key)
		say(!isRead && !isHard, "this signal has no threshold")
		for _, field := range []string{hardField, softField} {
			t, r := partOf(w.fields()[field][key]), partOf(w.Reclaim[key])
			text, _ := w.amountRefusal(reclaimField, key, w.Reclaim[key], true)
			isOut := w.isRead(field, key) && text == "" && t > 0 && t < 1 && r > 0 && r <= 1 && t+r >= 1
			say(isOut, "%s above the threshold %s can never be available", valueOf(w.Reclaim[key]), valueOf(w.fields()[field][key]))
		}
	}
	return strings.Join(lines, "\n")
}

// isBelowHard reports whether a soft threshold can only be met after the hard threshold.
func (w *settingsWorld) isBelowHard(key string) bool {
	hard, soft := w.hard()[key], w.Soft[key]
	if !w.isRead(hardField, key) || isOff(hard) || isOff(soft) {
		return false
	}
	if strings.HasSuffix(hard, "%") != strings.HasSuffix(soft, "%") {
		return false
	}
	if strings.HasSuffix(hard, "%") {
		return partOf(soft) <= partOf(hard)
	}
	h, s := resource.MustParse(hard), resource.MustParse(soft)
	return s.Cmp(h) <= 0
}

func isOff(value string) bool { return value == "0%" || value == "100%" }

// partOf returns the part of the capacity that a plain percentage means, or 0 for any other
// value.
func partOf(value string) (part float32) {
	number, ok := strings.CutSuffix(value, "%")
	if !ok {
		return 0
	}
	if _, err := fmt.Sscanf(number, "%g", &part); err != nil {
		return 0
	}
	return part / 100
}

// valueOf returns the text of a value in our notation.
func valueOf(value string) string {
	if part := partOf(value); part != 0 {
		return fmt.Sprintf("%.6g%%", part*100)
	}
	q, err := resource.ParseQuantity(value)
	if err != nil {
		return value
	}
	return resource.NewQuantity(q.Value(), q.Format).String()
}
