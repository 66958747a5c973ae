package catalog

import "strings"

// stopWords say nothing about what is searched for. They count only if a query has no
// other words.
var stopWords = wordSet(`a an and any anybody anyone are at be been by can could did do does for from has have how i if in
	is it its let many me much my now of our please should so some than that the their them then there they this to
	under was we were what when which who why will with would you your`)

// weakWords are verbs that people use for almost anything. They count less than others.
var weakWords = wordSet(`get give make read set show start tell turn use`)

// askWords begin a question. The caller then needs a tool that reads.
var askWords = wordSet(`are did do does has have how is was were what when which who why`)

// synonyms are groups of words that people use for one thing. Names of devices, tools and
// values use few of them. A word may be in several groups.
var synonyms = synonymsOf(`
	lamp light bulb lighting brightness
	bright dim light brightness color
	color colour light red green blue white
	blind cover shutter curtain shade roller
	raise open
	lower close shut draw
	heating heater thermostat climate radiator trv
	warm hot cold cool temperature thermometer degree
	plug outlet socket switch
	motion occupancy presence movement pir
	someone somebody person occupancy presence
	door window contact
	humid humidity moisture damp
	power energy electricity consumption watt current meter
	vacuum robot cleaner hoover
	base dock home
	where locate find
	air co2 voc pm25
	smoke fire
	leak water
	irrigation sprinkler water valve tap
	boiler water_heater
	speed percentage
	blink flash effect
	alarm siren
	arm leaving away
	television tv
	outside outdoor garden
	upstairs downstairs stairs
	lounge living
	basement cellar
	bed bedroom bedside
`)

// wordSet returns a set of words.
func wordSet(text string) map[string]bool {
	set := make(map[string]bool)
	for _, w := range strings.Fields(text) {
		set[w] = true
	}
	return set
}

// synonymsOf returns the other words of the groups of each word.
func synonymsOf(text string) map[string][]string {
	others := make(map[string][]string)
	for line := range strings.Lines(text) {
		group := strings.Fields(line)
		for _, w := range group {
			for _, other := range group {
				if other != w {
					others[w] = append(others[w], other)
				}
			}
		}
	}
	return others
}

// stem removes the ending of a word: lights, opened, closing. The rest may not be a word; it
// is compared with the beginnings of words.
func stem(word string) string {
	for _, ending := range []string{"ing", "ed", "er", "es", "s"} {
		least := 4 // letters that stay
		if ending == "s" {
			least = 3
		}
		if rest, ok := strings.CutSuffix(word, ending); ok && len(rest) >= least && !strings.HasSuffix(rest, "s") {
			return rest
		}
	}
	return word
}
