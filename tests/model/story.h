/* SPDX-License-Identifier: MIT
 *
 * story.h: a text in the style of the demo model's training data, for tests that need some hundred
 * tokens of sensible text. Written for these tests.
 */
#ifndef TANDEM_TESTS_MODEL_STORY_H
#define TANDEM_TESTS_MODEL_STORY_H

static const char story_text[] =
    "Once upon a time, there was a little boy named Ben. Ben had a small red boat. Every day he "
    "took the boat to the lake and let it float on the water. One day, the wind was very strong. "
    "It pushed the boat far away from Ben. \"Come back!\" he cried, but the boat did not stop. Ben "
    "was sad and sat down under a big tree.\n"
    "A brown duck saw him and asked, \"Why are you sad?\" Ben said, \"My boat is gone. I can not "
    "swim so far.\" The duck looked at the lake and said, \"I can help you. I swim every day.\" "
    "The duck jumped into the water and swam and swam until she found the boat near a rock. She "
    "pushed it with her yellow beak, all the way back to the boy.\n"
    "Ben was so happy that he danced around the tree. \"Thank you, duck! You are a good friend,\" "
    "he said. He gave the duck some of his bread, and they ate it together in the sun. Then Ben's "
    "mom came to look for him. Ben told her what the duck had done. Mom smiled and said, \"It is "
    "nice to help others. What will you do for the duck?\" Ben thought for a long time. Then he "
    "took a rope and a box and made a little house by the lake, so that the duck could sleep in "
    "it when it rained. From that day on, Ben and the duck played with the red boat every "
    "morning, and the wind never took it away again.\n"
    "One night there was a loud storm. Ben looked out of the window and was scared for his "
    "friend. But the duck was safe and warm in her house, and in the morning she had a surprise "
    "for him. There were five tiny eggs under her wing. Ben clapped his hands and promised to "
    "keep it a secret until the little ducks could swim.";

#endif
