package stats

import "time"

// Rearm is the default of SetRearm.
const Rearm = rearm

// SetRearm sets the time after which Watch adds new sources. Call
// SetRearm before Watch.
func (p *Provider) SetRearm(every time.Duration) { p.rearm = every }
