// Package quantity reads amounts such as 100Mi from whoever writes them.
package quantity

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// maxExponent is beyond everything that a quantity can hold, either way.
const maxExponent = 99

// Parse is [resource.ParseQuantity] for text that nobody has checked: with an
// exponent such as that of 1e-1000000000 the latter computes for minutes.
func Parse(text string) (resource.Quantity, error) {
	if err := Check(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

// Check returns why the text can't be given to [resource.ParseQuantity], which may
// refuse it for other reasons.
func Check(text string) error {
	i := strings.LastIndexAny(text, "eE")
	if i < 0 {
		return nil
	}
	exponent, err := strconv.Atoi(strings.TrimSpace(text[i+1:])) // 0 of 1E, 1Ei and nonsense
	if errors.Is(err, strconv.ErrRange) || exponent > maxExponent || exponent < -maxExponent {
		return fmt.Errorf("the exponent of %.40q is out of range", text)
	}
	return nil
}
